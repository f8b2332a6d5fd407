"""Finds the end of a literal in JSON's or Python's notation, or with a template's own quotes."""

import re

_OUTSIDE = re.compile(r"[^\"'{}\[\](),<]+")
_OPENING, _CLOSING = "{[(", "}])"


class LiteralScanner:
    """Finds the end of a literal in growing text; looks at each character once."""

    def __init__(self, quotes: tuple[str, str]) -> None:
        """quotes: texts around strings that are allowed in addition to the quotes of JSON and Python."""
        self._own = quotes if quotes[0].strip("'\"") else None
        self._quotes = '"' if self._own else "\"'"
        self._closing = ""  # of the string that has begun
        self._depth = 0
        self._at = 0

    def end(self, text: str) -> int | None:
        """Return the end of the value at the beginning of `text`: before a comma, or an unmatched closing
        bracket.

        None if the value continues after `text`. Each call of `end` gets the same text as the previous call,
        perhaps with more text at its end.
        """
        while self._at < len(text):
            if self._closing:
                if not self._leave_string(text):
                    return None
            elif self._ends(text[self._at]):
                return self._at
            elif not self._step(text):
                return None
        return None

    def _ends(self, c: str) -> bool:
        return self._depth == 0 and (c == "," or c in _CLOSING)

    def _step(self, text: str) -> bool:
        """Read one element of the text; return False if more text is needed to recognize it."""
        c, rest = text[self._at], text[self._at : self._at + 16]
        if self._own and rest.startswith(self._own[0]):
            self._closing = self._own[1]
            self._at += len(self._own[0])
        elif self._own and self._own[0].startswith(rest):
            return False
        elif c in self._quotes:
            self._closing = c
            self._at += 1
        else:
            self._depth += (c in _OPENING) - (c in _CLOSING)
            plain = _OUTSIDE.match(text, self._at)
            self._at = plain.end() if plain else self._at + 1
        return True

    def _leave_string(self, text: str) -> bool:
        if self._own and self._closing == self._own[1]:
            end = text.find(self._closing, self._at)
            if end < 0:
                self._at = max(self._at, len(text) - len(self._closing) + 1)
                return False
            self._at = end + len(self._closing)
        else:
            inner = re.compile(rf"(?:[^\\{self._closing}]++|\\.)*+", re.DOTALL).match(text, self._at)
            assert inner  # it also matches nothing
            self._at = inner.end()
            if self._at >= len(text) or text[self._at] == "\\":
                return False
            self._at += 1
        self._closing = ""
        return True
