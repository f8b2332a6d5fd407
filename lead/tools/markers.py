"""Markers: the texts that models write around the parts of their answers."""

import re
from collections import deque
from collections.abc import Collection

MARKER = re.compile(r"<[^<>\s\ue000-\ue002]+>|\[/?[A-Z_]{3,}\]|```\w*")
"""As templates write them; most are control tokens. None contains a place of `lead.tools.call_format`."""
BEGUN = re.compile(r"<[^<>\s]*$|\[[A-Z_/]*$")
"""The beginning of one at the end of a text."""


def shared_beginning(*texts: str) -> str:
    """The longest text that all of them begin with."""
    shortest = min(texts, key=len, default="")
    characters = enumerate(zip(*texts, strict=False))
    return shortest[: next((n for n, each in characters if len(set(each)) > 1), None)]


def whole(text: str) -> str:
    """Without a marker that has only begun."""
    begun = BEGUN.search(text)
    return text[: begun.start()] if begun else text


def split_at_marker(text: str, markers: Collection[str], *, complete: bool) -> tuple[str, str | None, str]:
    """The text before the first marker, that marker, and the rest.

    Without a marker, the rest is an end of `text` that may become one, unless `text` is `complete`. The
    result does not depend on how the text was cut into pieces: of markers that begin at the same place the
    longest wins, and is waited for.
    """
    found = [(at, -len(marker), marker) for marker in markers if (at := text.find(marker)) >= 0]
    at, _, marker = min(found, default=(len(text), 0, None))
    n_certain = len(text) if complete else len(text) - partial_marker_length(text, markers)
    if marker is None or n_certain <= at:
        return text[:n_certain], None, text[n_certain:]
    return text[:at], marker, text[at + len(marker) :]


def partial_marker_length(text: str, markers: Collection[str]) -> int:
    """The length of the longest end of `text` that is the beginning of a marker, but not a whole one."""
    longest = max((len(mark) - 1 for mark in markers), default=0)
    for n in range(min(len(text), longest), 0, -1):
        if any(len(mark) > n and mark.startswith(text[-n:]) for mark in markers):
            return n
    return 0


class TextPieces:
    """Text that is taken from the front, and may be put back there, without copying the rest.

    False while it is empty.
    """

    def __init__(self, text: str) -> None:
        self._pieces = deque([(text, 0)] if text else [])  # with how many characters of it were taken

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def append(self, text: str) -> None:
        if text:
            self._pieces.append((text, 0))

    def put_back(self, text: str) -> None:
        if text:
            self._pieces.appendleft((text, 0))

    def take(self, n: int) -> str:
        """At most `n` of the first characters; IndexError if there are none."""
        text, at = self._pieces.popleft()
        if at + n < len(text):
            self._pieces.appendleft((text, at + n))
        return text[at : at + n]
