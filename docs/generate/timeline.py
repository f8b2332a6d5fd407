"""The picture of what lead and back do at the same time, as SVG: four steps of a made-up text.

Time runs from left to right. Above are the lead's steps with the tokens that each of them checks, below what
the back drafts meanwhile, and in the first row what is final.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 960, 400
_LEFT, _STEP, _GAP = 96, 206, 10
_CHIP_HEIGHT, _DRAFT = 26, 32
_TEXT_Y, _LEAD_Y, _LEAD_HEIGHT, _BACK_Y, _BRANCH_Y, _LEGEND_Y = 48, 76, 98, 248, 298, 366
_CHARACTER = 7.3
"""Width of a character of 13 px, roughly: chips in the lead's steps are as wide as their text."""

_TITLE = "A lead checks drafts while a back drafts ahead"
_DESCRIPTION = (
    "A timeline of four steps. While the lead reads the prompt and makes the token The, the back drafts "
    "The, fox, sat, on. The lead's next step checks fox, sat, on: all are right, and with its own "
    "token, the, four tokens are final after one step. Meanwhile the back has drafted the, old, oak, "
    "tree, and for the place of oak the side branch log, till. The third step checks old, oak, tree: "
    "old is right, oak is not, and the lead says log. That is where the side branch begins, so the "
    "fourth step checks till, dawn and a full stop without a pause: all are right. Eleven tokens are "
    "final after four steps; a lead alone has four."
)

_SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
    'aria-labelledby="title description" font-family="system-ui, sans-serif" font-size="13">'
)


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours as CSS has them; each pair of text and ground has a contrast of at least 4.5."""

    text: str
    soft: str
    line: str
    step: str
    draft: tuple[str, str]
    right: tuple[str, str]
    wrong: tuple[str, str]
    own: tuple[str, str]


LIGHT = Palette(
    text="#1f2328",
    soft="#57606a",
    line="#8c959f",
    step="#f6f8fa",
    draft=("#eaeef2", "#1f2328"),
    right=("#cdefd5", "#0b4a1f"),
    wrong=("#ffd8d5", "#8a1119"),
    own=("#cfe4ff", "#0a3069"),
)
DARK = Palette(
    text="#e6edf3",
    soft="#a1abb6",
    line="#6e7681",
    step="#161b22",
    draft=("#2a313a", "#e6edf3"),
    right=("#14401f", "#a6f0b5"),
    wrong=("#5a1a1d", "#ffc9c4"),
    own=("#0f3566", "#b6dbff"),
)


class Fate(Enum):
    """What becomes of a token; the value is the sign that says it without colour."""

    RIGHT = "✓"
    WRONG = "✗"
    DROPPED = ""
    OWN = "+"
    """The lead's own: at a mismatch, or behind a draft that is all right."""


class _Step(NamedTuple):
    heading: str
    tokens: Sequence[tuple[str, Fate]]
    committed: str
    drafted: Sequence[str]
    branch: Sequence[str] = ()


_STEPS = (
    _Step("reads the prompt", [("The", Fate.OWN)], "The", ["The", "fox", "sat", "on"]),
    _Step(
        "checks three: all are right",
        [("fox", Fate.RIGHT), ("sat", Fate.RIGHT), ("on", Fate.RIGHT), ("the", Fate.OWN)],
        "fox sat on the",
        ["the", "old", "oak", "tree"],
        ["log", "till"],
    ),
    _Step(
        "checks three: oak is wrong",
        [("old", Fate.RIGHT), ("oak", Fate.WRONG), ("tree", Fate.DROPPED), ("log", Fate.OWN)],
        "old log",
        ["by", "the"],
        ["dawn", "."],
    ),
    _Step(
        "goes on in the side branch",
        [("till", Fate.RIGHT), ("dawn", Fate.RIGHT), (".", Fate.RIGHT), ("It", Fate.OWN)],
        "till dawn. It",
        ["It", "had", "rained", "all"],
    ),
)
_BRANCH_AT = 2
"""The branch leaves the second step's main line in place of this draft token."""


def timeline(palette: Palette) -> str:
    """An SVG document; its ground is transparent."""
    parts = [
        _SVG,
        f'<title id="title">{escape(_TITLE)}</title>',
        f'<desc id="description">{escape(_DESCRIPTION)}</desc>',
        *_lanes(palette),
        *(part for number, step in enumerate(_STEPS) for part in _draw_step(number, step, palette)),
        *(part for number in range(1, len(_STEPS)) for part in _arrows(number, palette)),
        *_legend(palette),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _lanes(palette: Palette) -> Iterator[str]:
    for y, word, hint in (
        (_TEXT_Y, "text", "final"),
        (_LEAD_Y + 30, "lead", "big model"),
        (_BACK_Y + 12, "back", "small model,"),
    ):
        yield _text(0, y, word, palette.text, weight=600, size=15)
        yield _text(0, y + 17, hint, palette.soft, size=12)
    yield _text(0, _BACK_Y + 45, "elsewhere", palette.soft, size=12)
    yield _text(_LEFT, 18, "time →", palette.soft, size=12)


def _draw_step(number: int, step: _Step, palette: Palette) -> Iterator[str]:
    x, width = _LEFT + number * (_STEP + _GAP), _STEP
    yield _text(x + width, _TEXT_Y, step.committed, palette.text, anchor="end", weight=600)
    yield (
        f'<rect x="{x}" y="{_LEAD_Y}" width="{width}" height="{_LEAD_HEIGHT}" rx="8" fill="{palette.step}" '
        f'stroke="{palette.line}"/>'
    )
    yield _text(x + 10, _LEAD_Y + 22, f"step {number + 1}", palette.text, weight=600)
    yield _text(x + 10, _LEAD_Y + 42, step.heading, palette.soft)
    yield from _checked(x + 8, _LEAD_Y + 60, step.tokens, palette)
    yield from _drafted(x, step, palette)


def _checked(x: float, y: float, tokens: Sequence[tuple[str, Fate]], palette: Palette) -> Iterator[str]:
    for word, fate in tokens:
        label = f"{fate.value} {word}".strip()
        width = _CHARACTER * len(label) + 8
        yield _chip(x, y, width, label, _colours(fate, palette), crossed=fate is Fate.DROPPED)
        x += width + 3


def _drafted(x: float, step: _Step, palette: Palette) -> Iterator[str]:
    """Draft tokens take their time one after the other: the side branch when the main line is far enough."""
    widths = [max(_DRAFT, _CHARACTER * len(word) + 8) for word in (*step.drafted, *step.branch)]
    places = [x + sum(widths[:i]) + 2 * i for i in range(len(widths))]
    for i, (word, place, width) in enumerate(zip((*step.drafted, *step.branch), places, widths, strict=True)):
        y = _BACK_Y if i < len(step.drafted) else _BRANCH_Y
        yield _chip(place, y, width, word, palette.draft)
    if step.branch and len(step.drafted) > _BRANCH_AT:
        start, end = places[_BRANCH_AT] - 1, places[len(step.drafted)]
        yield (
            f'<path d="M{start:g} {_BACK_Y + _CHIP_HEIGHT + 2} V{_BRANCH_Y + 13} H{end - 3:g}" fill="none" '
            f'stroke="{palette.line}" stroke-width="1.5"/>'
        )
        yield _text(start - 6, _BRANCH_Y + 17, "or, instead of oak:", palette.soft, size=12, anchor="end")


def _arrows(number: int, palette: Palette) -> Iterator[str]:
    """Between two steps: what the lead has kept goes down, drafts go up."""
    x = _LEFT + number * (_STEP + _GAP)
    top, bottom = _LEAD_Y + _LEAD_HEIGHT + 4, _BACK_Y - 6
    down, up = x - _GAP - 8, x + 12
    yield _arrow(down, top, bottom, palette.line)
    yield _arrow(up, bottom, top, palette.line)
    if number == 1:
        yield _text(down - 6, (top + bottom) / 2 + 4, "what is final", palette.soft, anchor="end", size=12)
        yield _text(up + 8, (top + bottom) / 2 + 4, "drafts", palette.soft, size=12)


def _legend(palette: Palette) -> Iterator[str]:
    entries = (
        ("draft", palette.draft, "a guess of the back"),
        ("✓ right", palette.right, "the lead says so, too: kept"),
        ("✗ wrong", palette.wrong, "dropped, and what follows it"),
        ("+ own", palette.own, "the lead's own token"),
    )
    x: float = _LEFT
    for label, colours, meaning in entries:
        width = _CHARACTER * len(label) + 10
        yield _chip(x, _LEGEND_Y, width, label, colours)
        yield _text(x + width + 6, _LEGEND_Y + 17, meaning, palette.soft, size=12)
        x += width + 6.1 * len(meaning) + 16


def _colours(fate: Fate, palette: Palette) -> tuple[str, str]:
    return {
        Fate.RIGHT: palette.right,
        Fate.WRONG: palette.wrong,
        Fate.DROPPED: palette.draft,
        Fate.OWN: palette.own,
    }[fate]


def _chip(
    x: float, y: float, width: float, label: str, colours: tuple[str, str], *, crossed: bool = False
) -> str:
    ground, ink = colours
    line = ' text-decoration="line-through"' if crossed else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{_CHIP_HEIGHT}" rx="5" fill="{ground}"/>'
        f'<text x="{x + width / 2:g}" y="{y + 17.5:g}" text-anchor="middle" fill="{ink}"{line}>'
        f"{escape(label)}</text>"
    )


def _text(  # noqa: PLR0917 - what a text is made of
    x: float, y: float, text: str, ink: str, size: int = 13, weight: int = 400, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{ink}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _arrow(x: float, start: float, end: float, colour: str) -> str:
    back = 6 if end < start else -6
    return (
        f'<path d="M{x:g} {start:g} V{end:g} m-4 {back} l4 {-back} l4 {back}" fill="none" stroke="{colour}" '
        'stroke-width="1.5"/>'
    )
