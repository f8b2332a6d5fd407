"""Helpers for text that is still being generated: a window on the text, and the markers in it."""

import re
from collections import deque
from collections.abc import Collection

MARKER = re.compile(r"<[^<>\s\ue000-\ue002]+>|\[/?[A-Z_]{3,}\]|```\w*")
"""A marker as templates write it; most markers are control tokens. None contains a placeholder of
`lead.tools.call_format`.
"""
MAX_SPACE_CHARACTERS = 256
"""The longest white space that may belong to a marker; text before it is final."""
_WINDOW_CHARACTERS = 512
BEGUN = re.compile(r"<[^<>\s]*$|\[[A-Z_/]*$")
"""The beginning of a marker, at the end of a text."""


def common_prefix(*texts: str) -> str:
    """Return the longest common prefix of the texts."""
    shortest = min(texts, key=len, default="")
    characters = enumerate(zip(*texts, strict=False))
    return shortest[: next((n for n, each in characters if len(set(each)) > 1), None)]


def whole(text: str) -> str:
    """Return `text` without an incomplete marker at its end."""
    begun = BEGUN.search(text)
    return text[: begun.start()] if begun else text


def split_at_marker(text: str, markers: Collection[str], *, complete: bool) -> tuple[str, str | None, str]:
    """Split into the text before the first marker, that marker, and the rest.

    Without a marker, the rest is a suffix of `text` that may become a marker; it is empty if `text` is
    `complete`. Of markers that begin at the same position, the longest wins, even if its end has not arrived.
    So the result does not depend on how the text is cut into pieces.
    """
    found = [(at, -len(marker), marker) for marker in markers if (at := text.find(marker)) >= 0]
    at, _, marker = min(found, default=(len(text), 0, None))
    n_certain = len(text) if complete else len(text) - partial_marker_length(text, markers)
    if marker is None or n_certain <= at:
        return text[:n_certain], None, text[n_certain:]
    return text[:at], marker, text[at + len(marker) :]


def partial_marker_length(text: str, markers: Collection[str]) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of a marker."""
    longest = max((len(mark) - 1 for mark in markers), default=0)
    for n in range(min(len(text), longest), 0, -1):
        if any(len(mark) > n and mark.startswith(text[-n:]) for mark in markers):
            return n
    return 0


class Window:
    """The part of an answer's text that a parser looks at; it is bounded, as each step may copy all of it.

    text: the part of the window that has not been consumed. finished: no more text will be pushed.
    """

    def __init__(self, text: str = "") -> None:
        self.text = ""
        self.finished = False
        self._later = deque([(text, 0)] if text else [])  # texts, and how many characters are in `text`

    @property
    def complete(self) -> bool:
        """True if nothing will follow `text`."""
        return self.finished and not self._later

    def push(self, text: str) -> None:
        if text:
            self._later.append((text, 0))

    def grow(self) -> bool:
        """Extend `text`; return False if there is no more text."""
        if not self._later:
            return False
        later, at = self._later.popleft()
        if at + _WINDOW_CHARACTERS < len(later):
            self._later.appendleft((later, at + _WINDOW_CHARACTERS))
        self.text += later[at : at + _WINDOW_CHARACTERS]
        return True

    def read_again(self, text: str) -> None:
        """Discard the window's contents; `text` is read next."""
        self.text = ""
        if text:
            self._later.appendleft((text, 0))

    def split(self, markers: Collection[str]) -> tuple[str, str | None]:
        """Consume the text up to and including the first of these markers.

        Return the text before the marker, and the marker (None: not found).
        """
        text, marker, self.text = split_at_marker(self.text, markers, complete=self.complete)
        return text, marker
