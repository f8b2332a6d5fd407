"""Writes text of models and peers to a terminal, without control characters that act on it."""

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TextIO

_FIRST_COLUMN = re.compile(r" *(?:\S+(?: \S+)* {2,})?")
_REPLACEMENT = "\ufffd"


def sanitize(text: str) -> str:
    """Return `text` with control characters made visible and harmless, except line breaks and tabs.

    Directional marks, which Arabic and Hebrew texts use, are removed. Each character is replaced separately,
    so a sequence split over chunks is harmless, too.
    """
    return text.translate(_SAFE)


def one_line(text: str, maximum: int = 1000) -> str:
    """Return a peer's text for a log: one line without control characters, at most `maximum` characters."""
    line = " ".join(sanitize(text).split())
    return line if len(line) <= maximum else f"{line[: maximum - 1]}…"


def wrapped(text: str, width: int) -> str:
    """Return `text` with lines of at most `width` characters, broken between words.

    Text after two spaces is a second column, and the further lines of this text are indented to the column.
    """
    return "\n".join(
        textwrap.fill(
            line,
            width,
            subsequent_indent=" " * len(_FIRST_COLUMN.match(line)[0]),  # type: ignore[index]  # it matches any line
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
        for line in text.split("\n")
    )


def size_text(n_bytes: float) -> str:
    """Return a size with three digits, in GB or MB."""
    return f"{n_bytes / 1e6:.3g} MB" if abs(n_bytes) < 999.5e6 else f"{n_bytes / 1e9:.2f} GB"  # noqa: PLR2004


def error_reason(body: bytes, status: int) -> str:
    """Return the reason in an error response; its status if there is no reason.

    Knows the formats of OpenAI (`{"error": {"message": …}}`), Ollama (`{"error": …}`) and FastAPI
    (`{"detail": …}`).
    """
    with suppress(ValueError, LookupError, TypeError):
        said = json.loads(body)
        said = said["error"] if "error" in said else said["detail"]
        said = said["message"] if isinstance(said, dict) else said
        if isinstance(said, str):
            return one_line(said)
    return f"HTTP {status}"


def wants_color(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether to use colors: on a terminal that supports them, unless NO_COLOR is set and not empty
    (no-color.org).
    """
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _unsafe() -> Iterable[tuple[int, str]]:
    """Yield each character that would control a terminal or reorder its text, and its replacement."""
    for code in range(0x20):
        yield code, chr(0x2400 + code)  # C0: Unicode has a picture of each
    yield 0x7F, "\u2421"
    for codes in (
        range(0x80, 0xA0),  # C1: in eight bits what ESC is in seven; U+009B opens a sequence by itself
        range(0x2028, 0x202F),  # line and paragraph separator, bidirectional embeddings and overrides
        range(0x2066, 0x2070),  # bidirectional isolates, and deprecated controls of shaping
        range(0xD800, 0xE000),  # lone surrogates, which no stream can encode
    ):
        for code in codes:
            yield code, _REPLACEMENT


_MARKS = "\u061c\u200e\u200f"
"""Arabic letter mark, left-to-right mark, right-to-left mark."""
_SAFE = {code: shown for code, shown in _unsafe() if chr(code) not in "\n\t"} | dict.fromkeys(
    map(ord, _MARKS), ""
)
