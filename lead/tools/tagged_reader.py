"""Reads the arguments of a call that are written one by one, while they are generated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from lead.chat_format.markers import partial_marker_length
from lead.tools.argument_types import ANY_TYPE, STRING, Types, kinds_of
from lead.tools.call_format import CallFormat, TaggedArguments
from lead.tools.json_stream import decode
from lead.tools.literal_scanner import LiteralScanner
from lead.tools.notation import read_value

_MAX_NAME_CHARACTERS = 300


class _State(Enum):
    """The part that comes next, if reading it needs no state of its own."""

    BETWEEN = auto()  # before an argument, or the end
    NAME = auto()


@dataclass(slots=True)
class _Value:
    """A value that ends before a mark. The mark may occur inside the value, too.

    n_seen: the number of its first characters in which no end was found.
    """

    types: Types
    middle: str
    n_seen: int = 0


@dataclass(slots=True)
class _Literal:
    """A value whose own syntax shows its end."""

    types: Types
    scanner: LiteralScanner


@dataclass(slots=True)
class TaggedReader:
    """Reads the text after a call's header, piece by piece.

    types: the types of the values, by the names of arguments. rest: the text after the arguments; None until
    they have ended.
    """

    calls: CallFormat
    types: Mapping[str, Types]
    rest: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    """The values of the arguments, by name."""
    _text: str = ""
    _name: str = ""
    _state: _State | _Value | _Literal = _State.BETWEEN
    _closing: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._closing = self.calls.closing

    @property
    def is_whole(self) -> bool:
        """True if no argument is incomplete."""
        return self._state is _State.BETWEEN

    def push(self, text: str, *, complete: bool = False) -> None:
        """Add `text`. complete: no text follows."""
        self._text += text
        while self.rest is None and self._step(complete=complete):
            pass

    def _step(self, *, complete: bool) -> bool:
        """Read the next part of the text; return False if more text is needed for that."""
        match self._state:
            case _State.BETWEEN:
                return self._read_between(complete=complete)
            case _State.NAME:
                return self._read_name()
            case _Value() as value:
                return self._read_value(value, complete=complete)
            case _Literal() as literal:
                return self._read_literal(literal)

    def _read_between(self, *, complete: bool) -> bool:
        key, between = self._style.key.strip(), self._style.between.strip()
        self._text = self._text.lstrip()
        if self.values:
            self._text = self._text.removeprefix(between).lstrip()
        if not self._text:
            return False
        if key and self._text.startswith(key):
            self._text = self._text[len(key) :]
        elif not complete and _is_part(self._text, (key, *self._closing)):
            return False
        elif key or self._text.startswith(self._closing):
            return self._leave(self._text.removeprefix(self._closing[0]))
        self._state = _State.NAME
        return True

    def _leave(self, rest: str) -> bool:
        self.rest, self._text = rest, ""
        return True

    def _read_name(self) -> bool:
        middles = {each.strip(): each for each in self._style.middles.values()}
        found = [(at, -len(each), each) for each in middles if (at := self._text.find(each)) >= 0]
        if not found:
            return len(self._text) > _MAX_NAME_CHARACTERS and self._leave(self._text)
        at, n, middle = min(found)
        self._name, self._text = self._text[:at].strip(), self._text[at - n :]
        self._begin_value(middles[middle])
        return True

    def _begin_value(self, middle: str) -> None:
        written = frozenset(kind for kind, each in self._style.middles.items() if each == middle)
        types = self.types.get(self._name, ANY_TYPE) & written or written
        if self._style.quotes[0] and not self._style.close:
            self._state = _Literal(types, LiteralScanner(self._style.quotes))
        else:
            self._state = _Value(types, middle)

    # Values

    def _end_value(self, value: Any, n: int) -> bool:
        """Store the value of an argument, and skip its `n` characters; return True."""
        self.values[self._name] = value
        self._text, self._state = self._text[n:], _State.BETWEEN
        return True

    def _read_value(self, value: _Value, *, complete: bool) -> bool:
        close = self._style.close.strip()
        at = self._text.find(close, value.n_seen)
        if at < 0:
            value.n_seen = max(0, len(self._text) - len(close) + 1)
            return False
        # If the white space before the mark is missing, the mark is more likely to be part of the value.
        is_exact = self._text[: at + len(close)].endswith(self._style.close)
        follows = self._is_followed(at + len(close), is_exact=is_exact, complete=complete)
        if follows is None:
            return False
        written = self._without_space(self._text[:at], value.middle)
        if not follows or not self._may_be(written, value.types):
            value.n_seen = at + len(close)
            return True
        return self._end_value(self._value(written, value.types), at + len(close))

    def _is_followed(self, at: int, *, is_exact: bool, complete: bool) -> bool | None:
        """Return whether the text at `at` may follow an argument; None if more text is needed to decide."""
        key, between = self._style.key.strip(), self._style.between.strip()
        after = self._text[at:].lstrip().removeprefix(between).lstrip()
        followers = tuple(filter(None, (key, *self._closing[: None if is_exact else 1])))
        if after.startswith(followers) or (complete and not after):
            return True
        return None if not complete and (not after or _is_part(after, followers)) else False

    def _without_space(self, text: str, middle: str) -> str:
        """Return the text without the white space that the template puts around a value."""
        close = self._style.close
        start = middle[len(middle.rstrip()) :]
        return text.removeprefix(start).removesuffix(close[: len(close) - len(close.lstrip())])

    def _may_be(self, text: str, types: Types) -> bool:
        if "string" in types:
            return True
        try:
            return bool(kinds_of(_read(text, self._style.quotes)) & types)
        except ValueError:
            return False

    def _value(self, text: str, types: Types) -> Any:
        opening, closing = self._style.escaped
        if opening and text.startswith(opening) and text.endswith(closing):
            return text[len(opening) : len(text) - len(closing)]
        return tagged_value(text, types, self._style.quotes)

    def _read_literal(self, literal: _Literal) -> bool:
        end = literal.scanner.end(self._text)
        if end is None:
            return False
        return self._end_value(tagged_value(self._text[:end], literal.types, self._style.quotes), end)

    @property
    def _style(self) -> TaggedArguments:
        assert self.calls.arguments
        return self.calls.arguments


def tagged_value(text: str, types: Types, quotes: tuple[str, str] = ("", "")) -> Any:
    """Return the value that `text` writes: of one of the types if possible, else a string."""
    if types == STRING and not quotes[0]:
        return text
    try:
        value = _read(text, quotes)
    except ValueError:
        return text
    if quotes[0]:
        return value
    kinds = kinds_of(value)
    return text if "string" in kinds or ("string" in types and not kinds & types) else value


def _read(text: str, quotes: tuple[str, str]) -> Any:
    try:
        return decode(text.strip())
    except ValueError:
        return read_value(text.strip(), quotes)


def _is_part(text: str, marks: tuple[str, ...]) -> bool:
    """Return whether all of `text` is the beginning of a mark."""
    return partial_marker_length(text, marks) == len(text)
