"""Reads JSON while it is generated: finds the end of a value, and decodes it."""

import json
import re
from typing import Any

_PIECE = re.compile(r'[^"\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(?P<backslash>\\)(?!\Z|u[0-9a-fA-F]{0,3}\Z)')
"""A piece of a JSON string: text, a complete escape, or a backslash that escapes nothing."""
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_MEMBER = re.compile(r'[\s,}]*+"((?:[^"\\]++|\\.)*+)"\s*+:\s*+')


class ValueScanner:
    """Finds the end of a JSON value without validating it."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._begun = False

    def push(self, text: str) -> int | None:
        """Return the number of characters of `text` that belong to the value; None if the value continues."""
        for i, c in enumerate(text):
            if self._in_string:
                self._push_in_string(c)
                ended = not self._in_string and self._depth == 0
            elif c == "<" or (self._depth == 0 and self._begun and (c in ",}]" or c.isspace())):
                return i  # after a number or a literal, or at a marker in place of a bracket
            else:
                ended = self._push_outside(c)
            if ended:
                return i + 1
        return None

    def _push_outside(self, c: str) -> bool:
        self._begun = self._begun or not c.isspace()
        self._in_string = c == '"'
        if c in "{[":
            self._depth += 1
        elif c in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False

    def _push_in_string(self, c: str) -> None:
        if self._escaped:
            self._escaped = False
        elif c == "\\":
            self._escaped = True
        elif c == '"':
            self._in_string = False


def members(text: str) -> dict[str, str]:
    """Return the JSON text of each member of an object, which may be incomplete; values are not validated.

    Members of an object in the member `function` count as members of the outer object.
    """
    found: dict[str, str] = {}
    at = text.find("{") + 1
    while member := _MEMBER.match(text, at):
        at = member.end()
        if member[1] == "function" and text.startswith("{", at):
            at += 1
            continue
        n = ValueScanner().push(text[at:])
        end = len(text) if n is None else at + n
        found.setdefault(member[1], text[at:end])
        at = end
    return found


class StringDecoder:
    """Decodes the characters of a JSON string, after its opening quote."""

    def __init__(self) -> None:
        self._text = ""
        self.rest: str | None = None
        """The text after the closing quote; None until the quote has arrived."""

    def push(self, text: str) -> str:
        """Add `text`; return the characters that it completes."""
        text = self._text + text
        pieces: list[str] = []
        n = 0
        while piece := _PIECE.match(text, n):
            pieces.append(r"\\" if piece["backslash"] else piece[0])
            n = piece.end()
        ended = text[n : n + 1] == '"'
        if pieces and not ended and _HIGH_SURROGATE.fullmatch(pieces[-1]):
            n -= len(pieces.pop())  # the low surrogate may follow
        self._text = text[n:]
        if ended:
            self.rest, self._text = self._text[1:], ""
        decoded: str = decode(f'"{"".join(pieces)}"')
        return decoded


def decode(text: str) -> Any:
    """Decode JSON as models write it: strings may contain control characters. Raises ValueError.

    Unpaired surrogates, which no answer can contain, become U+FFFD if the value is a string.
    """
    try:
        value = json.loads(text, strict=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


class ResponseStream:
    """Extracts the content of a generic answer from its member "response", as the answer arrives.

    The content is the characters of a string, or the JSON text of another value.
    """

    def __init__(self) -> None:
        self._string: StringDecoder | None = None
        self._end = ValueScanner()
        self._begun = self._ended = False

    def push(self, text: str) -> str:
        """Add `text`; return the content that it completes."""
        if not self._begun and text:
            self._begun = True
            if text.startswith('"'):
                self._string, text = StringDecoder(), text[1:]
        if self._string:
            return "" if self._string.rest is not None else self._string.push(text)
        if self._ended:
            return ""
        n = self._end.push(text)
        self._ended = n is not None
        return text[:n]
