"""Grammar rules for the JSON documents that a schema allows.

llguidance makes them (`%json`), but does not bound the digits of numbers. Therefore the objects, lists and
alternatives around numbers are written here.
"""

import json
from collections.abc import Container, Mapping, Sequence
from decimal import Decimal
from typing import Any

from lead.grammar.lark import lark_grammar, literal
from lead.grammar.numbers import ANY_NUMBER, decimal_of, number_between
from lead.grammar.references import ALTERNATIVES, BY_NAME, IN_LISTS, SINGLE, Schema, inner_schemas

_OPTIONS = {
    # If any amount of white space is allowed, models may write nothing else. They usually write one space.
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    # Accept overlapping alternatives of oneOf, which llguidance cannot express.
    "lenient": True,
    "coerce_one_of": True,
    "json_allow_general_unicode_escapes": True,
}
_COMMA, _COLON = "/, ?/", "/: ?/"
_STRING = (
    r'/"(?:[^"\\\x00-\x1f\x7f]|\\["\\bfnrt]|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    r'|[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*"/'
)
"""A string, as llguidance defines it."""
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_PLAIN = {
    "object": {"type", "properties", "required", "additionalProperties"},
    "array": {"type", "items", "minItems", "maxItems"},
    "tuple": {"type", "prefixItems", "minItems", "maxItems", "items"},
    "number": {"type", *_BOUNDS},
}
"""The keywords that are written as rules here."""
_SCALARS = {"string", "integer", "boolean", "null"}
_MAX_NUMBER = 10**16
_MAX_OPTIONAL = 1000
"""The maximum total number of optional properties: each is a rule that refers to the next, and llguidance
recurses.
"""
_MAX_DIGITS = 16
"""A bound is read here only if it is zero, or its magnitude is from 10^-16 to less than 10^17.
"""
_MIN_STEP = 1e-9
"""The `multipleOf` given to numbers that have none: it bounds their digits, so that llguidance can count
them.
"""


def json_grammar(schema: Mapping[str, Any]) -> str:
    """Return the grammar of the JSON documents that a checked schema allows."""
    rules: list[str] = []
    start = JsonRules(rules).of(schema)
    return lark_grammar([f"start: {start}", *rules])


class JsonRules:
    """Adds rules for schemas to a grammar; equal schemas share a rule."""

    def __init__(self, rules: list[str]) -> None:
        self._rules = rules
        self._names: dict[str, str] = {}
        self._references: dict[str, str] = {}
        self._unwritten: list[tuple[str, int]] = []  # definitions, and where their rules will be
        self._definitions: Mapping[str, Schema] = {}
        self._with_numbers: set[str] = set()
        self._n_optional = 0

    def of(self, schema: Mapping[str, Any]) -> str:
        """Return the name of the rule for a checked schema."""
        self._definitions = schema.get("$defs", {})
        self._references, self._n_optional = {}, 0
        self._with_numbers = _definitions_with_numbers(self._definitions)
        start = self._value({keyword: value for keyword, value in schema.items() if keyword != "$defs"})
        while self._unwritten:
            name, at = self._unwritten.pop()
            self._rules[at] = f"{self._references[name]}: {self._value(self._definitions[name])}"
        return start

    def _value(self, schema: Any) -> str:
        if not _has_numbers(schema, self._with_numbers):
            return self._leaf(schema)
        if schema is True or not schema:
            return self._any()
        if schema.keys() == {"$ref"}:
            return self._reference(schema["$ref"])
        body = self._body(schema)
        return self._rule(body) if body else self._leaf(_with_short_numbers(schema))

    def _body(self, schema: Schema) -> str:
        """Return the body of a rule for the schema; empty if it cannot be written here."""
        if ways := _ways(schema):
            return " | ".join(map(self._value, ways))
        if _is_plain(schema, "object"):
            return self._object(schema)
        if _is_plain(schema, "array"):
            return self._array(schema)
        if _is_plain(schema, "tuple") and schema.get("minItems") == schema.get("maxItems"):
            return self._tuple(schema)
        number = _number(schema) if _is_plain(schema, "number") else ""
        return number and self._terminal(number)

    def _object(self, schema: Schema) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        further = schema.get("additionalProperties", True)
        names = [*properties, *(name for name in required if name not in properties)]
        values = {name: properties.get(name, further) for name in names}
        self._n_optional += len(values.keys() - required)
        if self._n_optional > _MAX_OPTIONAL:
            return ""
        items = [
            (f"{_quoted(name)} {_COLON} {self._value(value)}", name in required)
            for name, value in values.items()
            if value is not False or name in required
        ]
        if further is not False:
            pair = f"{self._key(names)} {_COLON} {self._value(further)}"
            items.append((f"{pair} ({_COMMA} {pair})*", False))
        return f'"{{" {self._in_order(items)} "}}"'

    def _in_order(self, items: Sequence[tuple[str, bool]]) -> str:
        """Return the items, with commas between them; an item that is not required (False) may be missing."""
        ways: list[str] = []
        rest = ""  # what may follow an item, each part with a comma before
        for item, is_required in reversed(items):
            ways = [f"{item} {rest}", *([] if is_required else ways)]
            rest = f"{_COMMA} {item} {rest}" if is_required else self._rule(f"({_COMMA} {item})? {rest}")
        first = " | ".join(ways)
        return (
            f"({first})" if any(is_required for _, is_required in items) else f"({first})?" if items else ""
        )

    def _array(self, schema: Schema) -> str:
        minimum, maximum, item = schema.get("minItems", 0), schema.get("maxItems"), schema.get("items", True)
        if maximum == 0 or item is False:
            return "" if minimum else '"[" "]"'
        value = self._value(item)
        more = f"({_COMMA} {value}){{{max(minimum - 1, 0)},{'' if maximum is None else maximum - 1}}}"
        items = value if maximum == 1 else f"{value} {more}"
        return f'"[" {items if minimum else f"({items})?"} "]"'

    def _tuple(self, schema: Schema) -> str:
        items = schema["prefixItems"]
        return (
            f'"[" {f" {_COMMA} ".join(map(self._value, items))} "]"'
            if len(items) == schema["minItems"]
            else ""
        )

    def _any(self) -> str:
        if "any" not in self._names:
            name = self._names["any"] = f"json{len(self._rules)}"
            self._rules.append("")
            at = len(self._rules) - 1
            text, number = self._terminal(_STRING), self._terminal(f"/{ANY_NUMBER}/")
            pairs = f"{text} {_COLON} {name} ({_COMMA} {text} {_COLON} {name})*"
            self._rules[at] = (
                f'{name}: "null" | "true" | "false" | {text} | {number}'
                f' | "{{" ({pairs})? "}}" | "[" ({name} ({_COMMA} {name})*)? "]"'
            )
        return self._names["any"]

    def _key(self, names: Sequence[str]) -> str:
        """Return a terminal for any key other than `names`."""
        if not names:
            return self._terminal(_STRING)
        return self._terminal(f"{_STRING} & ~({' | '.join(map(_quoted, names))})")

    def _reference(self, reference: str) -> str:
        name = _name(reference)
        if name not in self._references:
            self._references[name] = f"json{len(self._rules)}"
            self._unwritten.append((name, len(self._rules)))
            self._rules.append("")
        return self._references[name]

    def _leaf(self, schema: Any) -> str:
        needed = _needed(schema, self._definitions)
        definitions = {"$defs": {name: self._definitions[name] for name in needed}} if needed else {}
        full = {**definitions, **(schema if isinstance(schema, dict) else {"allOf": [schema]})}
        return self._rule(f"%json {json.dumps({**full, 'x-guidance': _OPTIONS})}")

    def _rule(self, body: str) -> str:
        return self._named(body, f"json{len(self._rules)}")

    def _terminal(self, body: str) -> str:
        return self._named(body, f"JSON{len(self._rules)}")

    def _named(self, body: str, name: str) -> str:
        if body not in self._names:
            self._names[body] = name
            self._rules.append(f"{name}: {body}")
        return self._names[body]


def _quoted(name: str) -> str:
    return literal(json.dumps(name, ensure_ascii=False))


def _ways(schema: Schema) -> list[Any]:
    """Return the alternatives that a schema consists of."""
    types = schema.get("type")
    if isinstance(types, list):
        return [_of_type(schema, each) for each in types]
    found = schema.get("anyOf", schema.get("oneOf")) if len(schema) == 1 else None
    return [each for each in found or () if each is not False]


def _of_type(schema: Schema, name: str) -> Schema:
    """Return the schema for one of its types."""
    about = schema.keys() & _BOUNDS if name == "number" else schema.keys()
    return {**{keyword: schema[keyword] for keyword in schema if keyword in about}, "type": name}


def _is_plain(schema: Schema, form: str) -> bool:
    """Return whether a schema uses only keywords that can be written here."""
    counts = (schema.get(keyword, 0) for keyword in ("minItems", "maxItems"))
    required = schema.get("required", [])
    return (
        isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and schema.get("type") == ("array" if form == "tuple" else form)
        and not schema.keys() - _PLAIN[form]
        and all(isinstance(count, int) and count >= 0 for count in counts)
    )


def _has_numbers(schema: Any, with_numbers: Container[str]) -> bool:
    """Return whether values of a schema may have numbers other than integers and given constants."""
    if not isinstance(schema, dict):
        return schema is not False
    if schema.keys() & {"const", "enum"}:
        return False
    given = schema.get("type")
    types = {each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)}
    if types and types <= _SCALARS:
        return False
    inner = any(_has_numbers(each, with_numbers) for _, each in inner_schemas(schema))
    refers = "$ref" in schema and _name(schema["$ref"]) in with_numbers
    return inner or refers or "number" in types or _is_open(schema, types)


def _is_open(schema: Schema, types: set[str]) -> bool:
    """Return whether a schema allows any value, or any value in an object or list."""
    if schema.keys() & {"$ref", "allOf", *ALTERNATIVES}:
        return False
    has_any_items = "array" in types and not schema.keys() & {"items", "prefixItems"}
    return not types or has_any_items or ("object" in types and "additionalProperties" not in schema)


def _definitions_with_numbers(definitions: Mapping[str, Schema]) -> set[str]:
    found: set[str] = set()
    while True:
        more = {name for name, each in definitions.items() if name not in found and _has_numbers(each, found)}
        if not more:
            return found
        found |= more


def _name(reference: str) -> str:
    return reference.removeprefix("#/$defs/")


def _needed(schema: Any, definitions: Mapping[str, Schema]) -> list[str]:
    """Return the definitions that a schema refers to, directly or through other definitions."""
    found: dict[str, None] = {}
    todo = [schema]
    while todo:
        each = todo.pop()
        if not isinstance(each, dict):
            continue
        todo += [inner for _, inner in inner_schemas(each)]
        if isinstance(reference := each.get("$ref"), str):
            name = _name(reference)
            if name not in found:
                found[name] = None
                todo.append(definitions[name])
    return list(found)


def _number(schema: Schema) -> str:
    """Return an expression for the numbers of a schema; empty if there are none, or if its bounds are
    unusual.
    """
    bounds = {keyword: _bound(schema[keyword]) for keyword in _BOUNDS & schema.keys()}
    given = [(keyword, bound) for keyword, bound in bounds.items() if bound is not None]
    if len(given) < len(bounds):
        return ""
    lower = [(bound, keyword != "minimum") for keyword, bound in given if keyword.endswith("inimum")]
    upper = [(bound, keyword == "maximum") for keyword, bound in given if keyword.endswith("aximum")]
    minimum, over = max(lower, default=(None, False))
    maximum, within = min(upper, default=(None, True))
    return number_between(minimum, maximum, over=over, under=not within)


def _bound(value: object) -> Decimal | None:
    bound = decimal_of(value)
    return bound if bound is not None and -_MAX_DIGITS <= bound.adjusted() <= _MAX_DIGITS else None


def _with_short_numbers(schema: Schema) -> Schema:
    """Return a copy in which numbers have bounds, and steps that llguidance can count."""
    return schema if "multipleOf" in json.dumps(schema) else _shorten(schema)


def _shorten(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    copy = {keyword: _shorten_inside(keyword, value) for keyword, value in schema.items()}
    types = schema.get("type")
    if types != "number" and not (isinstance(types, list) and "number" in types):
        return copy
    lower = {} if schema.keys() & {"minimum", "exclusiveMinimum"} else {"minimum": -_MAX_NUMBER}
    upper = {} if schema.keys() & {"maximum", "exclusiveMaximum"} else {"maximum": _MAX_NUMBER}
    return {**copy, **lower, **upper, "multipleOf": _MIN_STEP}


def _shorten_inside(keyword: str, value: Any) -> Any:
    if keyword in BY_NAME and isinstance(value, dict):
        return {name: _shorten(each) for name, each in value.items()}
    if keyword in IN_LISTS and isinstance(value, list):
        return [_shorten(each) for each in value]
    return _shorten(value) if keyword in SINGLE else value
