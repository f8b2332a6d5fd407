"""Render Markdown as lines for a terminal, with rich: sanitized, and colored by source. No I/O.

HTML is shown as text. Line breaks are kept. The addresses of links are shown. Code is highlighted only in
texts without sources, because otherwise colors stand for sources.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from chat.attribution import AttributedText, Source, SourceColors, transfer
from shared.terminal import sanitize

THEME = Theme(
    {
        "markdown.code": "bold",
        "markdown.code_block": "none",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
        "markdown.block_quote": "italic",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.hr": "dim",
        "markdown.link": "underline",
        "markdown.link_url": "dim underline",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)
"""Styles without colors, because colors mark the sources of tokens."""

_CODE_THEME = "ansi_dark"
"""A theme of the terminal's own palette, so that code is readable on light and dark backgrounds."""

_parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])

Lines = list[list[Segment]]


def render(block: AttributedText, console: Console, palette: SourceColors) -> Lines:
    """Return the lines of one or more blocks, no wider than the console, without leading or trailing blank
    lines.
    """
    try:
        markdown = _Document(block.text, highlighted=not block.has_sources)
        lines = console.render_lines(markdown, pad=False)
    except Exception:  # noqa: BLE001  (the answer is shown even if rich fails on it)
        lines = console.render_lines(Text(sanitize(block.text)), pad=False)
    lines = _without_blank_ends([[_harmless(segment) for segment in line] for line in lines])
    return list(_marked(lines, block, palette)) if block.has_sources else lines


def last_block(text: str) -> int:
    """Return the index at which the last block of an unfinished text begins.

    The rendering of all blocks before it is final.
    """
    # An unfinished line is ambiguous: "-" may begin a list, the underline of a heading, or a rule.
    whole = text[: text.rfind("\n") + 1]
    starts = [token.map[0] for token in _parser.parse(whole) if token.level == 0 and token.map]
    if not starts:
        return 0
    return sum(map(len, whole.splitlines(keepends=True)[: starts[-1]]))


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render code indented, on the terminal's own background."""
        del console, options
        code = str(self.text).rstrip()
        yield Syntax(
            code,
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            padding=(0, 2),
            background_color="default",
        )


class _Heading(Heading):
    LEVEL_ALIGN: ClassVar = {}


class _Document(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
        "heading_open": _Heading,
    }

    def __init__(self, text: str, *, highlighted: bool) -> None:
        super().__init__("", code_theme=_CODE_THEME, hyperlinks=False)
        self.parsed = _parser.parse(sanitize(text))
        for token in _all(self.parsed):
            # The parser has decoded entities: "&#27;" is an escape character now.
            token.content = sanitize(token.content)
            if token.type == "softbreak":
                token.type = "hardbreak"
            elif token.type == "fence" and not highlighted:
                token.info = "text"


def _all(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or ())


def _harmless(segment: Segment) -> Segment:
    # The style of a link contains escape sequences.
    style = segment.style.update_link(None) if segment.style and segment.style.link else segment.style
    return Segment(sanitize(segment.text), style)


def _without_blank_ends(lines: Lines) -> Lines:
    full = [i for i, line in enumerate(lines) if any(segment.text.strip() for segment in line)]
    return lines[full[0] : full[-1] + 1] if full else []


def _marked(lines: Lines, block: AttributedText, palette: SourceColors) -> Iterator[list[Segment]]:
    shown = "\n".join("".join(segment.text for segment in line) for line in lines)
    marks = iter(transfer(block.text, block.sources, shown))
    for line in lines:
        yield [part for segment in line for part in _colored(segment, marks, palette)]
        next(marks, None)  # the mark of the line break


def _colored(segment: Segment, marks: Iterator[Source], palette: SourceColors) -> Iterator[Segment]:
    style = segment.style or Style.null()
    pairs = ((char, next(marks)) for char in segment.text)
    for source, run in groupby(pairs, key=lambda pair: pair[1]):
        color = Style(color=palette.name_of(source)) if source is not None else Style.null()
        yield Segment("".join(char for char, _ in run), style + color)
