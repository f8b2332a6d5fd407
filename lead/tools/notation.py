"""Values as chat templates write them: JSON, Python, or strings between marks of the template's own."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_DEPTH = 64
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "boolean": bool,  # which is an int, too
    "integer": int,
    "number": float,
    "string": str,
    "null": type(None),
    "array": (list, tuple),
    "object": object,
}
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[^\s:,{}\[\]()\"'<>]+")
_SPACE = re.compile(r"\s*")
_PLAIN = re.compile(r"[^\\\"']+")
_ESCAPES = {
    **{c: c for c in "\\/\"'"},
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "0": "\0",
    "\n": "",
}
_DIGITS = {"x": 2, "u": 4, "U": 8}
_BRACKETS = {"[": "]", "(": ")"}


def type_name(value: object) -> str:
    """The JSON type of a value."""
    return next(name for name, kinds in _TYPES.items() if isinstance(value, kinds))


def spellings(value: object, quotes: tuple[str, str]) -> Iterator[str]:
    """How templates write `value`; `quotes` are around strings where they are not JSON's."""
    for options in ({}, {"separators": (",", ":")}, {"indent": 2}, {"indent": 4}):
        yield json.dumps(value, ensure_ascii=False, **options)
    yield repr(value)
    if quotes[0].strip("'\""):
        yield _bare(value, quotes)


def _bare(value: object, quotes: tuple[str, str]) -> str:
    match value:
        case str():
            return f"{quotes[0]}{value}{quotes[1]}"
        case dict():
            members = (f"{key}:{_bare(each, quotes)}" for key, each in value.items())
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(_bare(each, quotes) for each in value)}]"
        case None:
            return "None"
    return json.dumps(value)


def read_value(text: str, quotes: tuple[str, str] = ("", "")) -> Any:
    """The value that all of `text` is, in any of the notations; raises ValueError."""
    reader = _Reader(text, quotes[0] if quotes[0].strip("'\"") else "", quotes[1])
    value = reader.value(0)
    reader.skip_space()
    if reader.at < len(text):
        raise ValueError("text after the value")
    return value


class _Reader:
    def __init__(self, text: str, opening: str, closing: str) -> None:
        self._text, self._opening, self._closing = text, opening, closing
        self.at = 0

    def skip_space(self) -> None:
        space = _SPACE.match(self._text, self.at)
        assert space  # it also matches nothing
        self.at = space.end()

    def value(self, depth: int) -> Any:
        """Raises ValueError."""
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        self.skip_space()
        c = self._text[self.at : self.at + 1]
        if self._begins_string():
            return self._string()
        if c == "{":
            return self._object(depth)
        if c in _BRACKETS:
            return self._list(_BRACKETS[c], depth)
        if number := _NUMBER.match(self._text, self.at):
            self.at = number.end()
            return json.loads(number[0])
        word = self._word()
        if word in _WORDS:
            return _WORDS[word]
        raise ValueError(f"{word[:20]!r} is no value")

    def _begins_string(self) -> bool:
        if self._opening:
            return self._text.startswith(self._opening, self.at)
        return self._text[self.at : self.at + 1] in {'"', "'"}

    def _string(self) -> str:
        if not self._opening:
            return self._quoted(self._text[self.at])
        begin = self.at + len(self._opening)
        end = self._text.find(self._closing, begin)
        if end < 0:
            raise ValueError("a string without an end")
        self.at = end + len(self._closing)
        return self._text[begin:end]

    def _quoted(self, quote: str) -> str:
        pieces = []
        self.at += 1
        while (c := self._text[self.at : self.at + 1]) != quote:
            if plain := _PLAIN.match(self._text, self.at):
                pieces.append(plain[0])
                self.at = plain.end()
            elif c == "\\":
                pieces.append(self._escape())
            elif c:
                pieces.append(c)
                self.at += 1
            else:
                raise ValueError("a string without an end")
        self.at += 1
        # Surrogates come in pairs in JSON; those that do not could be part of no answer.
        return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _escape(self) -> str:
        c = self._text[self.at + 1 : self.at + 2]
        if not c:
            raise ValueError("an escape without an end")
        self.at += 2
        if n := _DIGITS.get(c):
            digits = self._text[self.at : self.at + n]
            self.at += n
            return chr(int(digits, 16))
        return _ESCAPES.get(c, f"\\{c}")

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for _ in self._items("}"):
            key = self._string() if self._begins_string() else self._bare_name()
            self.skip_space()
            self._take(":")
            members[key] = self.value(depth + 1)
        return members

    def _bare_name(self) -> str:
        end = self._text.find(":", self.at)
        name, self.at = self._text[self.at : end], end
        if end < 0:
            raise ValueError("':' is missing")
        return name.strip()

    def _list(self, end: str, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in self._items(end)]

    def _items(self, end: str) -> Iterator[None]:
        """Stands at the beginning of each item, and after `end` when there are no more."""
        self.at += 1
        while True:
            self.skip_space()
            if self._text[self.at : self.at + 1] == end:
                self.at += 1
                return
            yield
            self.skip_space()
            if self._text[self.at : self.at + 1] != end:
                self._take(",")

    def _take(self, c: str) -> None:
        if self._text[self.at : self.at + 1] != c:
            raise ValueError(f"{c!r} is missing")
        self.at += 1

    def _word(self) -> str:
        word = _WORD.match(self._text, self.at)
        if not word:
            raise ValueError("a value is missing")
        self.at = word.end()
        return word[0]
