"""Reading the arguments of a call that are written one by one, while they are generated."""

import json
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from lead.chat.json_stream import decode
from lead.chat.markers import partial_marker_length
from lead.tools.call_format import CallFormat
from lead.tools.notation import read_value, type_name

Types = frozenset[str]
"""Names of JSON types that a value may have."""

ANY_TYPE: Types = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_STRING: Types = frozenset({"string"})
_MAX_NAME_CHARACTERS = 300
_OPENING, _CLOSING = "{[(", "}])"
_QUOTES = {"'", '"'}


class _State(Enum):
    BETWEEN = auto()
    NAME = auto()
    TEXT = auto()  # a value up to a mark
    LITERAL = auto()  # a value that ends by itself


class TaggedReader:
    """From the text after a call's header to the JSON text of its arguments, piece by piece."""

    def __init__(self, calls: CallFormat, types: Mapping[str, Types]) -> None:
        """types: of the values, by the names of arguments."""
        arguments = calls.arguments
        assert arguments
        self._arguments = arguments
        self._key, self._between = arguments.key.strip(), arguments.between.strip()
        self._close = arguments.close.strip()
        self._middles = {middle.strip(): middle for middle in arguments.middles.values()}
        self._end, *_ = self._ends = calls.closing
        self._types = types
        self._state = _State.BETWEEN
        self._text = ""
        self._n_scanned = self._depth = 0
        self._quote = ""
        self._name, self._middle = "", ""
        self._value_types = ANY_TYPE
        self._n_arguments = 0
        self._written = ""  # of a string whose beginning was sent
        self._streams = self._has_begun = False
        self.rest: str | None = None
        """The text after the arguments; None until then."""

    @property
    def is_whole(self) -> bool:
        """Whether no argument has been begun and not ended."""
        return self._state is _State.BETWEEN

    def push(self, text: str, *, complete: bool = False) -> str:
        """More of the JSON text of the arguments; complete: nothing comes after `text`."""
        self._text += text
        pieces = []
        while self.rest is None:
            piece = self._step(complete=complete)
            if piece is None:
                break
            pieces.append(piece)
        return "".join(pieces)

    def finish(self) -> str:
        """The end of the JSON, where the text ends after an argument."""
        return "}" if self._n_arguments else "{}"

    def _step(self, *, complete: bool) -> str | None:
        """The JSON that the next part of the text adds; None if more text is needed."""
        match self._state:
            case _State.BETWEEN:
                return self._read_between(complete=complete)
            case _State.NAME:
                return self._read_name()
            case _State.TEXT:
                return self._read_text(complete=complete)
            case _State.LITERAL:
                return self._read_literal()

    def _read_between(self, *, complete: bool) -> str | None:
        self._text = self._text.lstrip()
        if self._n_arguments and self._between:
            self._text = self._text.removeprefix(self._between).lstrip()
        if not self._text:
            return None
        if self._key and self._text.startswith(self._key):
            self._text = self._text[len(self._key) :]
        elif not complete and partial_marker_length(self._text, [self._key, *self._ends]) == len(self._text):
            return None
        elif self._key or self._text.startswith(self._ends):
            self.rest, self._text = self._text.removeprefix(self._end), ""
            return self.finish()
        self._state = _State.NAME
        return ""

    def _read_name(self) -> str | None:
        found = [(at, -len(each), each) for each in self._middles if (at := self._text.find(each)) >= 0]
        if not found:
            if len(self._text) > _MAX_NAME_CHARACTERS:
                self._leave()
                return self.finish()
            return None
        at, n, middle = min(found)
        written = self._middles[middle]
        self._name, self._text = self._text[:at].strip(), self._text[at - n :]
        typed = frozenset(kind for kind, each in self._arguments.middles.items() if each == written)
        own = self._types.get(self._name, ANY_TYPE)
        self._value_types = own & typed or typed
        self._state = _State.LITERAL if self._arguments.quotes[0] and not self._close else _State.TEXT
        self._n_scanned = self._depth = 0
        self._quote = ""
        self._streams = self._value_types == _STRING and not self._arguments.escaped[0]
        self._has_begun = False
        if written.endswith("\n"):
            self._middle = "\n"
        start = "{" if not self._n_arguments else ", "
        self._n_arguments += 1
        return f"{start}{_json(self._name)}: "

    def _leave(self) -> None:
        self.rest, self._text = self._text, ""

    # Values

    def _read_text(self, *, complete: bool) -> str | None:
        """A value up to the mark that closes it, which may also be part of the value."""
        if self._middle and self._text:
            self._text, self._middle = self._text.removeprefix(self._middle), ""
        at = self._text.find(self._close, self._n_scanned)
        if at >= 0:
            return self._read_to(at, complete=complete)
        n_open = partial_marker_length(self._text, [self._arguments.close, self._close])
        n_certain = len(self._text) - n_open
        space = len(self._arguments.close) - len(self._arguments.close.lstrip())
        n_certain = min(n_certain, len(self._text.rstrip("\n")) if space else n_certain)
        if self._streams and n_certain > 0:
            return self._take_text(n_certain)
        self._n_scanned = max(0, n_certain)
        return None

    def _read_to(self, at: int, *, complete: bool) -> str | None:
        after = self._text[at + len(self._close) :].lstrip()
        if self._between:
            after = after.removeprefix(self._between).lstrip()
        followers = [each for each in (self._key, *self._ends) if each]
        if after.startswith(tuple(followers)) or (complete and not after):
            return self._end_text(at)
        if not complete and (not after or partial_marker_length(after, followers) == len(after)):
            return None
        self._n_scanned = at + len(self._close)
        return ""

    def _end_text(self, at: int) -> str:
        space = self._arguments.close[: len(self._arguments.close) - len(self._arguments.close.lstrip())]
        value = self._text[:at].removesuffix(space)
        self._text = self._text[at + len(self._close) :]
        self._state, self._n_scanned = _State.BETWEEN, 0
        if self._streams:
            return f"{'' if self._has_begun else chr(34)}{_json(value)[1:-1]}\""
        if (marks := self._arguments.escaped)[0] and value.startswith(marks[0]) and value.endswith(marks[1]):
            return _json(value[len(marks[0]) : -len(marks[1])])
        return _json(tagged_value(value, self._value_types, self._arguments.quotes))

    def _take_text(self, n: int) -> str:
        text, self._text, self._n_scanned = self._text[:n], self._text[n:], 0
        start, self._has_begun = "" if self._has_begun else '"', True
        return f"{start}{_json(text)[1:-1]}"

    def _read_literal(self) -> str | None:
        """A value that says itself where it ends: before a comma or a bracket that it has not opened."""
        opening, closing = self._arguments.quotes
        own = bool(opening.strip("'\""))
        text = self._text
        while self._n_scanned < len(text):
            at = self._n_scanned
            if self._quote:
                if self._quote in _QUOTES and text[at] == "\\":
                    if at + 1 == len(text):
                        return None
                    self._n_scanned += 2
                elif text.startswith(self._quote, at):
                    self._n_scanned += len(self._quote)
                    self._quote = ""
                elif partial_marker_length(text[at:], [self._quote]) == len(text) - at:
                    return None
                else:
                    self._n_scanned += 1
            elif own and text.startswith(opening, at):
                self._quote, self._n_scanned = closing, at + len(opening)
            elif own and opening.startswith(text[at:]):
                return None
            elif text[at] == '"' or (not own and text[at] == "'"):
                self._quote, self._n_scanned = text[at], at + 1
            elif text[at] in _OPENING:
                self._depth += 1
                self._n_scanned += 1
            elif self._depth and text[at] in _CLOSING:
                self._depth -= 1
                self._n_scanned += 1
            elif not self._depth and (text[at] in _CLOSING or text[at] == ","):
                value, self._text = text[:at], text[at:]
                self._state = _State.BETWEEN
                return _json(tagged_value(value, self._value_types, self._arguments.quotes))
            else:
                self._n_scanned += 1
        return None


def tagged_value(text: str, types: Types, quotes: tuple[str, str] = ("", "")) -> Any:
    """The value that is written as `text`, of one of the types if it can be."""
    if types == _STRING and not quotes[0]:
        return text
    try:
        value = _read(text.strip(), quotes)
    except ValueError:
        return text
    if quotes[0]:
        return value
    kinds = kinds_of(value)
    return text if "string" in kinds or ("string" in types and not kinds & types) else value


def _read(text: str, quotes: tuple[str, str]) -> Any:
    try:
        return decode(text)
    except ValueError:
        return read_value(text, quotes)


def kinds_of(value: object) -> Types:
    """The JSON types of a value: one, or two for a whole number."""
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
    return frozenset({"integer", "number"}) if is_whole else frozenset({type_name(value)})


def types_of(schema: object, definitions: Mapping[str, Any] | None = None, depth: int = 0) -> Types:
    """The JSON types of a schema's values."""
    if not isinstance(schema, dict) or depth > 8:
        return ANY_TYPE
    definitions = definitions or {**schema.get("$defs", {}), **schema.get("definitions", {})}
    if isinstance(reference := schema.get("$ref"), str):
        return types_of(definitions.get(reference.rpartition("/")[2]), definitions, depth + 1)
    if isinstance(given := schema.get("type"), str):
        return frozenset({given}) & ANY_TYPE or ANY_TYPE
    if isinstance(given, list):
        return frozenset(each for each in given if isinstance(each, str)) & ANY_TYPE or ANY_TYPE
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return frozenset().union(*map(kinds_of, values)) or ANY_TYPE
    for name in ("anyOf", "oneOf"):
        if isinstance(ways := schema.get(name), list):
            return frozenset().union(*(types_of(each, definitions, depth + 1) for each in ways)) or ANY_TYPE
    if isinstance(parts := schema.get("allOf"), list):
        return frozenset(ANY_TYPE).intersection(*(types_of(each, definitions, depth + 1) for each in parts))
    return ANY_TYPE


def argument_types(parameters: object) -> Mapping[str, Types]:
    """Of a tool's parameters, by their names."""
    if not isinstance(parameters, dict) or not isinstance(given := parameters.get("properties"), dict):
        return {}
    definitions = {**parameters.get("$defs", {}), **parameters.get("definitions", {})}
    return {name: types_of(each, definitions) for name, each in given.items()}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


