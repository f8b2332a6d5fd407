"""Values in the notations of chat templates: JSON, Python, or strings between the template's own marks."""

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
_KEY = re.compile(r"([^:]*):")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([^xuU]))", re.DOTALL)
_QUOTED = {
    quote: re.compile(rf"{quote}((?:[^\\{quote}]++|{_ESCAPE.pattern})*+){quote}", re.DOTALL)
    for quote in "\"'"
}
_ESCAPES = dict(zip("ntrbfav0", "\n\t\r\b\f\a\v\0", strict=True)) | {c: c for c in "\\/\"'"} | {"\n": ""}
_BRACKETS = {"{": "}", "[": "]", "(": ")"}


def type_name(value: object) -> str:
    """Return the JSON type of a value."""
    return next(name for name, kinds in _TYPES.items() if isinstance(value, kinds))


def spellings(value: object, quotes: tuple[str, str]) -> Iterator[str]:
    """Yield the ways in which templates write `value`. quotes: the texts around strings, if not JSON's."""
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
    """Return the value that `text` writes in one of the notations; raises ValueError if it writes no single
    value.
    """
    reader = _ValueReader(text, quotes if quotes[0].strip("'\"") else ("", ""))
    value = reader.value(0)
    if reader.next():
        raise ValueError("text after the value")
    return value


class _ValueReader:
    def __init__(self, text: str, quotes: tuple[str, str]) -> None:
        self._text, self._at = text, 0
        opening, closing = map(re.escape, quotes)
        self._own = re.compile(f"{opening}(.*?){closing}", re.DOTALL) if opening else None

    def next(self) -> str:
        """Skip white space and return the next character; empty at the end."""
        self._take(_SPACE)
        return self._text[self._at : self._at + 1]

    def value(self, depth: int) -> Any:
        """Read the value that comes next; raises ValueError."""
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        if (string := self._string()) is not None:
            return string
        if end := _BRACKETS.get(self.next()):
            self._at += 1
            if end == "}":
                return {self._key(): self.value(depth + 1) for _ in self._items(end)}
            return [self.value(depth + 1) for _ in self._items(end)]
        if number := self._take(_NUMBER):
            return json.loads(number[0])
        word = self._take(_WORD)
        if not word or word[0] not in _WORDS:
            raise ValueError(f"{self._text[self._at :][:20]!r} is not a value")
        return _WORDS[word[0]]

    def _string(self) -> str | None:
        """Read the string that comes next; None: there is no string."""
        pattern = self._own or _QUOTED.get(self.next())
        self.next()
        string = self._take(pattern) if pattern else None
        if string is None or self._own:
            return string and string[1]
        text = _ESCAPE.sub(_unescaped, string[1])
        # Surrogates come in pairs in JSON. No answer can contain an unpaired surrogate.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _key(self) -> str:
        string = self._string()
        key = self._take(_KEY)
        if key is None or (string is not None and key[1].strip()):
            raise ValueError("':' is missing")
        return key[1].strip() if string is None else string

    def _items(self, end: str) -> Iterator[None]:
        """Yield at the beginning of each item, which the caller then reads; stop after `end`.

        Raises ValueError if `end` is missing.
        """
        while self.next() != end:
            yield
            if self.next() == ",":
                self._at += 1
            elif self.next() != end:
                raise ValueError(f"{end!r} is missing")
        self._at += 1

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found


def _unescaped(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2] or escape[3]
    return chr(int(digits, 16)) if digits else _ESCAPES.get(escape[4], escape[0])
