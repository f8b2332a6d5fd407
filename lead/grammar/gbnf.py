"""Converts GBNF, llama.cpp's notation of grammars, to llguidance's Lark.

GBNF works on characters, whereas Lark first splits a text into tokens as long as possible. Here every
character is a token, so that both accept the same texts. Parentheses become rules, as in llama.cpp.
"""

import re
from collections.abc import Callable

from lead.grammar.lark import check_size, lark_grammar, literal
from lead.settings.limits import RequestLimits
from shared.errors import RequestError

_MAX_REPEATS = 2000
"""The maximum number of repetitions, as in llama.cpp."""
_MAX_RULES = 1000
"""The maximum number of rules, including rules for parentheses, because llguidance follows references by
recursion.
"""
_MAX_NESTING = 64
"""The maximum nesting of parentheses, which are parsed recursively."""

_ESCAPE = r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\\"\[\]-])"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t]+|\#[^\r\n]*)
    |(?P<newline>\r\n?|\n)
    |(?P<literal>"(?:[^"\\]|{_ESCAPE})*")
    |(?P<characters>\[\^?(?:[^\]\\]|{_ESCAPE})*\])
    |(?P<token>!?<(?:\[[0-9]{{1,9}}\]|[^>\[][^>]*)>)
    |(?P<name>[a-zA-Z0-9-]+)
    |(?P<defines>::=)
    |(?P<braces>\{{[ \t]*[0-9]{{1,9}}[ \t]*(?:,[ \t]*(?:[0-9]{{1,9}})?[ \t]*)?\}})
    |(?P<sign>[|()*+?.])""",
    re.VERBOSE,
)
_UNIT = re.compile(rf"{_ESCAPE}|[^\\]", re.DOTALL)
_PLAIN_ESCAPES = {"t": "\t", "r": "\r", "n": "\n"}
_EMPTY = '""'

TokenId = Callable[[str], int | None]
"""Returns the special token with this text, if there is one."""


def gbnf_to_lark(text: str, token_id: TokenId, limits: RequestLimits) -> str:
    """Convert a grammar to Lark. Raises RequestError naming `grammar` if it is not valid GBNF, or
    too large.
    """
    check_size(text, limits, "grammar")
    try:
        return lark_grammar(_Converter(text, token_id).convert())
    except _GbnfError as error:
        raise RequestError(f"grammar: {error}", "grammar") from error


class _GbnfError(ValueError):
    """An error in a grammar, with a message for its author."""


class _Converter:
    """`_kind` and `_value` describe the next token; an empty kind means the end of the grammar."""

    def __init__(self, text: str, token_id: TokenId) -> None:
        self._text = text
        self._token_id = token_id
        self._at = 0
        self._kind = ""
        self._value = ""
        self._used: dict[str, str] = {}  # rules by GBNF's name
        self._bodies: dict[str, str] = {}

    def convert(self) -> list[str]:
        self._next()
        self._skip_lines()
        while self._kind:
            self._rule()
            self._skip_lines()
        for name, rule in self._used.items():
            if rule not in self._bodies:
                raise _GbnfError(f'the rule "{name}" is used but not defined')
        if "root" not in self._used:
            raise _GbnfError('the grammar has no rule "root"')
        if len(self._bodies) > _MAX_RULES:
            raise _GbnfError(f"{len(self._bodies)} rules and parentheses; at most {_MAX_RULES} are accepted")
        rules = [f"{name}: {body}" for name, body in self._bodies.items()]
        return [f"start: {self._used['root']}", *rules]

    def _rule(self) -> None:
        name = self._value
        if self._kind != "name":
            raise self._error("expected the name of a rule")
        self._next()
        if self._kind != "defines":
            raise self._error("::= is expected")
        self._next()
        self._skip_lines()
        self._bodies[self._reference(name)] = self._alternatives(0)
        if self._kind not in {"newline", ""}:
            raise self._error("expected the end of the line")

    def _next(self) -> None:
        self._kind = "space"
        while self._kind == "space":
            if self._at == len(self._text):
                self._kind = self._value = ""
                return
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                raise self._error("not GBNF")
            self._kind, self._value = match.lastgroup or "", match.group()
            self._at = match.end()

    def _skip_lines(self) -> None:
        while self._kind == "newline":
            self._next()

    def _is_sign(self, sign: str) -> bool:
        return self._kind == "sign" and self._value == sign

    def _alternatives(self, depth: int) -> str:
        alternatives = [self._sequence(depth)]
        while self._is_sign("|"):
            self._next()
            self._skip_lines()
            alternatives.append(self._sequence(depth))
        return " | ".join(alternatives)

    def _sequence(self, depth: int) -> str:
        """Parse a sequence, up to text that cannot belong to it; a new line ends it only outside
        parentheses.
        """
        items: list[str] = []
        while True:
            if depth:
                self._skip_lines()
            if repetition := self._repetition():
                if not items or items[-1] == _EMPTY:
                    raise self._error("nothing precedes the repetition")
                items[-1] = self._group(items[-1]) + repetition
            elif (item := self._item(depth)) is not None:
                items.append(item)
            else:
                return " ".join(items) or _EMPTY

    def _item(self, depth: int) -> str | None:
        kind, value = self._kind, self._value
        if self._is_sign("("):
            return self._parentheses(depth + 1)
        if kind == "name":
            item = self._reference(value)
        elif kind == "literal":
            item = " ".join(literal(_character(unit)) for unit in _UNIT.findall(value[1:-1])) or _EMPTY
        elif kind == "characters":
            item = _class(value)
        elif kind == "token":
            item = self._token(value)
        elif self._is_sign("."):
            item = "/(?s:.)/"
        else:
            return None
        self._next()
        return item

    def _parentheses(self, depth: int) -> str:
        if depth > _MAX_NESTING:
            raise _GbnfError(f"parentheses are nested more than {_MAX_NESTING} levels deep")
        self._next()
        self._skip_lines()
        body = self._alternatives(depth)
        if not self._is_sign(")"):
            raise self._error("expected a closing parenthesis")
        self._next()
        return self._group(body, always=True)

    def _group(self, body: str, *, always: bool = False) -> str:
        """Return one symbol that matches the same as `body`."""
        if not always and " " not in body and not body.endswith(("*", "+", "?", "}")):
            return body
        name = f"g{len(self._bodies)}"
        self._bodies[name] = body
        return name

    def _reference(self, name: str) -> str:
        return self._used.setdefault(name, f"r{len(self._used)}")

    def _token(self, value: str) -> str:
        negates, mark = value.startswith("!"), value.removeprefix("!")
        token = int(mark[2:-2]) if mark.startswith("<[") else self._token_id(mark)
        if token is None:
            raise _GbnfError(f"{mark} is not a token of this model")
        return f"<[{'^' if negates else ''}{token}]>"

    def _repetition(self) -> str:
        if self._kind == "sign" and self._value in "*+?":
            repetition = self._value
        elif self._kind == "braces":
            repetition = self._braces(self._value[1:-1])
        else:
            return ""
        self._next()
        return repetition

    def _braces(self, inside: str) -> str:
        minimum, comma, maximum = (part.strip() for part in inside.partition(","))
        if int(minimum) > _MAX_REPEATS:
            raise self._error(f"more than {_MAX_REPEATS} repetitions")
        if not comma:
            return f"{{{int(minimum)}}}"
        if not maximum or int(maximum) > _MAX_REPEATS:  # llama.cpp's reading, too
            return f"{{{int(minimum)},}}"
        if int(maximum) < int(minimum):
            raise self._error("the numbers of a repetition are out of order")
        return f"{{{int(minimum)},{int(maximum)}}}"

    def _error(self, message: str) -> _GbnfError:
        near = self._text[max(0, self._at - 20) : self._at + 20]
        return _GbnfError(f"{message} near {near!r}")


def _class(value: str) -> str:
    """Return a character class as a regular expression. In llama.cpp `-` means a range only between two
    characters.
    """
    inside = value[1:-1]
    negates = inside.startswith("^")
    units = _UNIT.findall(inside.removeprefix("^"))
    ranges = []
    while units:
        first = last = _point(units.pop(0))
        if len(units) > 1 and units[0] == "-":
            last = _point(units[1])
            del units[:2]
        ranges.append(_range(first, max(first, last)))
    if not ranges:
        raise _GbnfError(f"{value} has no characters")
    return f"/[{'^' if negates else ''}{''.join(ranges)}]/"


def _range(first: int, last: int) -> str:
    low, high = (c if (c := chr(n)).isascii() and c.isalnum() else f"\\u{{{n:x}}}" for n in (first, last))
    return low if first == last else f"{low}-{high}"


def _point(unit: str) -> int:
    return ord(_character(unit))


def _character(unit: str) -> str:
    if len(unit) == 1:
        return unit
    kind, rest = unit[1], unit[2:]
    if not rest:
        return _PLAIN_ESCAPES.get(kind, kind)
    try:
        return chr(int(rest, 16))
    except (ValueError, OverflowError) as error:
        raise _GbnfError(f"{unit} is not a character") from error
