"""Reading GBNF, llama.cpp's notation of grammars, as its own parser does; without native code.

A grammar here is what matters for its cost: which rules refer to which, how often, and how long they are.
"""

import re
from dataclasses import dataclass, field

MOST_REPEATS = 2000
"""llama.cpp refuses more repetitions of anything."""

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


class GrammarError(ValueError):
    """What is wrong, in words for the one who wrote it."""


@dataclass(slots=True)
class Item:
    """A part of an alternative: `least` to `most` times (None: without end) a rule or `n` characters.

    `n_rules`: how many rules llama.cpp makes of it.
    """

    rule: str | None
    n: int
    least: int = 1
    most: int | None = 1
    n_rules: int = 1


@dataclass(slots=True)
class Grammar:
    """rules[name] is a list of alternatives. Groups are rules with names that no one can write."""

    rules: dict[str, list[list[Item]]] = field(default_factory=dict)
    names_tokens: bool = False


def parse_gbnf(text: str, max_nesting: int) -> Grammar:
    """Raises GrammarError, also for rules that are used but not there, and without a rule `root`."""
    if "\0" in text:
        raise GrammarError("a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GrammarError("half of a surrogate pair") from error
    grammar = _Parser(text, max_nesting).parse()
    if "root" not in grammar.rules:
        raise GrammarError('the grammar has no rule "root"')
    for alternatives in grammar.rules.values():
        for item in (item for items in alternatives for item in items):
            if item.rule is not None and item.rule not in grammar.rules:
                raise GrammarError(f'the rule "{item.rule}" is used but not defined')
    return grammar


class _Parser:
    def __init__(self, text: str, max_nesting: int) -> None:
        self._text = text
        self._max_nesting = max_nesting
        self._at = 0
        self._kind = ""
        self._value = ""
        self._n_groups = 0
        self._n_generated = 0
        self._names: set[str] = set()
        self._grammar = Grammar()
        self._next()

    def parse(self) -> Grammar:
        self._skip_lines()
        while self._kind:
            name = self._value
            if self._kind != "name":
                raise self._error("the name of a rule is expected")
            self._next()
            if self._kind != "defines":
                raise self._error("::= is expected")
            self._next()
            self._skip_lines()
            self._grammar.rules[name] = self._alternatives(0)
            if self._kind not in {"newline", ""}:
                raise self._error("the end of the line is expected")
            self._skip_lines()
        return self._grammar

    def _next(self) -> None:
        """The next token but blanks; the empty kind at the end."""
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

    def _alternatives(self, depth: int) -> list[list[Item]]:
        alternatives = [self._sequence(depth)]
        while self._value == "|" and self._kind == "sign":
            self._next()
            self._skip_lines()
            alternatives.append(self._sequence(depth))
        return alternatives

    def _sequence(self, depth: int) -> list[Item]:
        """Up to what cannot belong to it; inside parentheses lines do not end it."""
        items: list[Item] = []
        repeatable = False
        while True:
            if depth:
                self._skip_lines()
            if bounds := self._repetition():
                if not repeatable:
                    raise self._error("there is nothing to repeat")
                self._repeat(items[-1], bounds)
            elif item := self._item(depth):
                items.append(item)
                repeatable = item.rule is not None or item.n > 0
            else:
                return items
            if not (self._kind == "sign" and self._value == ")" and depth):
                continue
            return items

    def _item(self, depth: int) -> Item | None:
        kind, value = self._kind, self._value
        if kind == "sign" and value == "(":
            return self._group(depth + 1)
        if kind == "name":
            self._names.add(value)
            item = Item(value, 1)
        elif kind == "literal":
            item = Item(None, len(_UNIT.findall(value[1:-1])))
        elif kind == "characters":
            item = Item(None, len(_UNIT.findall(value.removeprefix("[").removeprefix("^")[:-1])))
        elif kind == "token" or (kind == "sign" and value == "."):
            self._grammar.names_tokens |= kind == "token" and not value.endswith("]>")
            item = Item(None, 1)
        else:
            return None
        self._next()
        return item

    def _group(self, depth: int) -> Item:
        if depth > self._max_nesting:
            raise GrammarError(f"parentheses are nested more than {self._max_nesting} levels deep")
        self._next()
        self._skip_lines()
        n_before = self._n_symbols
        name = self._generate()
        self._grammar.rules[name] = self._alternatives(depth)
        if self._value != ")" or self._kind != "sign":
            raise self._error("a closing parenthesis is expected")
        self._next()
        return Item(name, 1, n_rules=max(1, self._n_symbols - n_before))

    def _repetition(self) -> tuple[int, int | None] | None:
        if self._kind == "sign" and self._value in "*+?":
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self._value]
        elif self._kind == "braces":
            least, comma, most = (part.strip() for part in self._value[1:-1].partition(","))
            bounds = int(least), (int(most) if most else None) if comma else int(least)
        else:
            return None
        self._next()
        return bounds

    def _repeat(self, item: Item, bounds: tuple[int, int | None]) -> None:
        least, most = bounds
        if most is not None and most > MOST_REPEATS:
            most = None  # llama.cpp's reading, too
        item.n_rules *= most or least or 1
        if least > MOST_REPEATS or item.n_rules > MOST_REPEATS:
            raise self._error(f"more than {MOST_REPEATS} repetitions")
        if most is not None and most < least:
            raise self._error("a repetition whose numbers are out of order")
        if (item.least, item.most) != (1, 1):  # a repetition of a repetition: as if in parentheses
            name = self._generate()
            self._grammar.rules[name] = [[Item(item.rule, item.n, item.least, item.most)]]
            item.rule, item.n = name, 1
        item.least, item.most = least, most
        self._n_generated += 1 if most is None else most - least

    @property
    def _n_symbols(self) -> int:
        return len(self._names) + self._n_generated

    def _generate(self) -> str:
        """A name that no one can write."""
        self._n_groups += 1
        self._n_generated += 1
        return f"({self._n_groups})"

    def _error(self, message: str) -> GrammarError:
        near = self._text[max(0, self._at - 20) : self._at + 20]
        return GrammarError(f"{message} near {near!r}")
