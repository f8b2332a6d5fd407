"""The rules of a grammar under construction, and how GBNF writes things down."""

import re
from collections.abc import Iterable

SPACE = '| " " | "\\n"{1,2} [ \\t]{0,20}'
"""Little white space: a model that may write any number of blanks may write nothing else."""

_INTEGRAL = "[0] | [1-9] [0-9]{0,15}"
_DATE = '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])'
_ZONE = '("Z" | [+-] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])'
_TIME = f'([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{{3}})? {_ZONE}'

PRIMITIVES: dict[str, tuple[str, tuple[str, ...]]] = {
    "space": (SPACE, ()),
    "boolean": ('"true" | "false"', ()),
    "null": ('"null"', ()),
    "integral-part": (_INTEGRAL, ()),
    "decimal-part": ("[0-9]{1,16}", ()),
    "integer": ('"-"? integral-part', ("integral-part",)),
    "number": (
        '"-"? integral-part ("." decimal-part)? ([eE] [-+]? integral-part)?',
        ("integral-part", "decimal-part"),
    ),
    "char": (r'[^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})', ()),
    "string": (r'"\"" char* "\""', ("char",)),
    "object": (
        '"{" space (string ":" space value ("," space string ":" space value)*)? space "}"',
        ("space", "string", "value"),
    ),
    "array": ('"[" space (value ("," space value)*)? space "]"', ("space", "value")),
    "value": (
        "object | array | string | number | boolean | null",
        ("object", "array", "string", "number", "boolean", "null"),
    ),
    "uuid": (r'"\"" [0-9a-fA-F]{8} ("-" [0-9a-fA-F]{4}){3} "-" [0-9a-fA-F]{12} "\""', ()),
    "date": (rf'"\"" {_DATE} "\""', ()),
    "time": (rf'"\"" {_TIME} "\""', ()),
    "date-time": (rf'"\"" {_DATE} "T" {_TIME} "\""', ()),
}
"""name → (body, names of the rules it needs). Each allows what llama.cpp's own rule of that name does."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9-]+")
_LONGEST_NAME = 24


class Rules:
    """Named rules. The names of rules that are not primitives end in a number, so none is taken twice."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}  # by body
        self._n = 0

    def primitive(self, name: str) -> str:
        """The name itself; the rule and what it needs are there from now on."""
        if name not in self._bodies:
            body, needed = PRIMITIVES[name]
            self._bodies[name] = body
            for other in needed:
                self.primitive(other)
        return name

    def add(self, hint: str, body: str) -> str:
        """The name of a rule with this body, made of `hint` where the rule is new."""
        name = self._names.get(body)
        if name is None:
            name = self._names[body] = self.reserve(hint)
            self._bodies[name] = body
        return name

    def reserve(self, hint: str) -> str:
        """A new name, whose body is given later by `define`."""
        self._n += 1
        return f"{_NOT_IN_NAMES.sub('-', hint)[:_LONGEST_NAME]}-{self._n}"

    def define(self, name: str, body: str) -> None:
        """Give a reserved name its body."""
        self._bodies[name] = body

    def text(self) -> str:
        """The whole grammar."""
        return "".join(f"{name} ::= {body}\n" for name, body in self._bodies.items())


_ESCAPES = {"\r": r"\r", "\n": r"\n", "\t": r"\t", '"': r"\"", "\\": r"\\"}


def literal(text: str) -> str:
    """`text` as GBNF's string."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c >= " " else f"\\x{ord(c):02X}") for c in text) + '"'


def character_class(ranges: Iterable[tuple[int, int]]) -> str:
    """The characters of inclusive `ranges` of code points, at least one."""
    parts = [_point(low) if low == high else f"{_point(low)}-{_point(high)}" for low, high in ranges]
    return "[" + "".join(parts) + "]"


def repeated(item: str, least: int, most: int | None, separator: str = "") -> str:
    """`item` (one symbol or group) `least` to `most` times (None: without end), `separator` in between."""
    if most == 0:
        return ""
    if not separator:
        return item + _quantifier(least, most)
    further = repeated(f"({separator} {item})", max(least - 1, 0), None if most is None else most - 1)
    several = f"{item} {further}".rstrip()
    return f"({several})?" if least == 0 else several


def _quantifier(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?", (1, 1): ""}.get((least, most))
    if short is not None:
        return short
    if least == most:
        return f"{{{least}}}"
    return f"{{{least},{'' if most is None else most}}}"


def _point(code: int) -> str:
    """One character inside a class; everything but letters and digits as an escape."""
    character = chr(code)
    if character.isascii() and character.isalnum():
        return character
    if code <= 0xFF:  # noqa: PLR2004 - two hexadecimal digits
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"  # noqa: PLR2004 - four
