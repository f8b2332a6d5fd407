"""The text of an answer in which tool calls may begin, as described by `CallGrammars`."""

import re
from typing import NamedTuple

from shared.sampling.call_grammars import NAME, CallGrammars

_LONGEST = 1024
"""The number of last bytes of the answer in which the beginning of a call is searched for."""


class BegunCall(NamedTuple):
    """A call that was found: the name of the tool, and the text after the call's beginning."""

    name: str
    rest: bytes


class AnswerText:
    """The answer so far, as a list of pieces."""

    def __init__(self, calls: CallGrammars) -> None:
        self._begins, self._follows = (re.compile(each.encode()) for each in (calls.begins, calls.follows))
        self._opening, self._closing = (each.encode() for each in calls.reasoning)
        self._is_first = calls.is_first
        self._text = bytearray(calls.said)
        self._starts: list[int] = []  # of the pieces

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self._starts)

    def __bytes__(self) -> bytes:
        return bytes(self._text)

    @property
    def n_bytes(self) -> int:
        return len(self._text)

    def copy(self) -> "AnswerText":
        other = object.__new__(AnswerText)
        other.__dict__ = self.__dict__ | {"_text": self._text[:], "_starts": self._starts[:]}
        return other

    def append(self, piece: bytes) -> None:
        self._starts.append(len(self._text))
        self._text += piece

    def keep(self, n: int) -> None:
        """Remove all but the first `n` pieces."""
        if n < len(self):
            del self._text[self._starts[n] :], self._starts[n:]

    def begins_with(self, piece: bytes, after: int | None = None) -> BegunCall | None:
        """Return the call that the next `piece` would begin, if any; after: the byte offset at which the last
        call ended.
        """
        end = len(self._text)
        start = max(after or 0, end - _LONGEST)
        text = bytes(self._text[start:]) + piece
        found = [each for each in self._begins.finditer(text) if self._is_call(start + each.start())]
        if start == after and self._follows.pattern:
            found += filter(None, [self._follows.match(text)])
        new = next((each for each in found if start + each.end() >= end), None)
        return new and BegunCall(new[NAME].decode(), text[new.end() :])

    def _is_call(self, start: int) -> bool:
        """Return whether the text that looks like the beginning of a call is a call."""
        if self._opening:
            opened, closed = (self._text.rfind(mark, 0, start) for mark in (self._opening, self._closing))
            if opened > closed:
                return False
        if not self._is_first:
            return True
        before = self._text[:start].rstrip()
        return not before or bool(self._closing and before.endswith(self._closing))
