"""From a JSON schema to a grammar whose sentences are the JSON documents that the schema allows.

The language is llama.cpp's where it has one: little white space, required properties first and in the
schema's order, optional ones in order behind them, nothing that `properties` does not name unless
`additionalProperties` says so. Like llama.cpp, it lets pass what it cannot express (`not`, `if`,
`uniqueItems`, bounds of `number`, look-around in a `pattern`): the answer is JSON all the same.
"""

import json
import math
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from lead.grammar.check import check_grammar
from lead.grammar.integers import integer_between
from lead.grammar.pattern import InvalidPatternError, UnsupportedPatternError, pattern_body
from lead.grammar.rules import Rules, literal, repeated
from lead.settings.limits import RequestLimits
from shared.errors import RequestError

JSON_OBJECT: dict[str, Any] = {"type": "object"}
"""The schema of OpenAI's `json_object`: any object."""

Schema = dict[str, Any]
Property = tuple[str, Any]

_COMMA = '"," space'
_MOST_RESOLVED = 64
"""References that lead to references only."""
_MOST_PARTS = 1000
"""Of one allOf, those of the schemas in it included: with more, some refer to themselves."""
_LONGEST_KEY = 200
"""Of a property beside `additionalProperties`: every character of it becomes a rule."""
_FORMATS = {"date", "time", "date-time", "uuid"}
_STRING_KEYWORDS = {"pattern", "minLength", "maxLength"}


def schema_to_gbnf(schema: object, limits: RequestLimits, param: str = "response_format") -> str:
    """The grammar of `schema`, checked by `check_grammar`; raises RequestError naming `param`."""
    _check_depth(schema, limits.max_schema_depth, param)
    try:
        text = _Converter(schema).convert()
    except _SchemaError as error:
        raise RequestError(f"{param}: {error}", param) from error
    check_grammar(text, limits, param)
    return text


class _SchemaError(ValueError):
    """What is wrong, and where in the schema."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"JSON schema error at {path}: {message}")


def _check_depth(schema: object, limit: int, param: str) -> None:
    """Everything below may recurse."""
    level, depth = [schema], 0
    while level:
        depth += 1
        if depth > 2 * limit:  # a schema inside a schema is two levels of JSON: properties → name
            raise RequestError(f"{param}: the schema is nested more than {limit} levels deep", param)
        inner: list[object] = []
        for value in level:
            inner += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        level = inner


class _Converter:
    """`_visit` gives an expression for a schema; references become rules of their own, one by one."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._rules = Rules()
        self._references: dict[str, str] = {}  # rule by reference
        self._pending: list[tuple[str, str]] = []

    def convert(self) -> str:
        self._rules.primitive("space")
        self._rules.define("root", self._visit(self._root, "#"))
        while self._pending:
            reference, name = self._pending.pop()
            self._rules.define(name, self._visit(self._resolve(reference, "#"), reference))
        return self._rules.text()

    def _visit(self, schema: object, path: str) -> str:
        if schema is True:
            return self._rules.primitive("value")
        if not isinstance(schema, dict):
            raise _SchemaError(path, "a schema is an object")
        for keyword, convert in self._keywords.items():
            if keyword in schema:
                return convert(self, schema, path)
        return self._visit_type(schema, path)

    def _named(self, schema: object, path: str, hint: str) -> str:
        """The name of a rule for `schema`."""
        expression = self._visit(schema, path)
        return expression if _is_name(expression) else self._rules.add(hint, expression)

    # What stands for a whole schema, in the order in which llama.cpp looks for it

    def _reference(self, schema: Schema, path: str) -> str:
        reference = schema["$ref"]
        self._resolve(reference, path)
        if reference not in self._references:
            name = self._rules.reserve(reference.rsplit("/", 1)[-1].lstrip("#") or "whole")
            self._references[reference] = name
            self._pending.append((reference, name))
        return self._references[reference]

    def _any_of(self, schema: Schema, path: str) -> str:
        keyword = "oneOf" if "oneOf" in schema else "anyOf"
        alternatives = _list(schema, keyword, path)
        names = [
            self._named(alternative, f"{path}/{keyword}/{i}", "alternative")
            for i, alternative in enumerate(alternatives)
        ]
        return " | ".join(dict.fromkeys(names))

    def _all_of(self, schema: Schema, path: str) -> str:
        parts = _list(schema, "allOf", path)
        beside = {key: value for key, value in schema.items() if key != "allOf"}
        if len(parts) == 1 and not beside.keys() & _CONSTRAINING:
            return self._visit(parts[0], f"{path}/allOf/0")
        return self._visit(_Merged(self._target, path).of([beside, *parts]), path)

    def _types(self, schema: Schema, path: str) -> str:
        types = _list(schema, "type", path)
        names = [self._named({**schema, "type": one}, path, "type") for one in types]
        return " | ".join(dict.fromkeys(names))

    def _const(self, schema: Schema, path: str) -> str:
        return _constant(schema["const"], path)

    def _enum(self, schema: Schema, path: str) -> str:
        return " | ".join(dict.fromkeys(_constant(value, path) for value in _list(schema, "enum", path)))

    def _type_or_types(self, schema: Schema, path: str) -> str:
        if isinstance(schema["type"], list):
            return self._types(schema, path)
        for keyword, convert in self._after_types.items():
            if keyword in schema:
                return convert(self, schema, path)
        return self._visit_type(schema, path)

    _after_types: dict[str, Callable[["_Converter", Schema, str], str]] = {  # noqa: RUF012 - never changed
        "const": _const,
        "enum": _enum,
        "allOf": _all_of,
    }
    _keywords: dict[str, Callable[["_Converter", Schema, str], str]] = {  # noqa: RUF012 - never changed
        "$ref": _reference,
        "oneOf": _any_of,
        "anyOf": _any_of,
        "type": _type_or_types,
        **_after_types,
    }

    # What a type says

    def _visit_type(self, schema: Schema, path: str) -> str:
        match _type_of(schema):
            case None:
                return self._rules.primitive("value")
            case "object":
                return self._object(schema, path)
            case "array":
                return self._array(schema, path)
            case "string":
                return self._string(schema, path)
            case "integer":
                return self._integer(schema, path)
            case "number" | "boolean" | "null" as name:
                return self._rules.primitive(name)
            case other:
                raise _SchemaError(path, f"unrecognized type {other!r}")

    def _object(self, schema: Schema, path: str) -> str:
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            raise _SchemaError(path, "properties must be an object")
        additional = schema.get("additionalProperties", "properties" not in schema)
        if not isinstance(additional, bool | dict):
            raise _SchemaError(path, "additionalProperties must be a boolean or a schema")
        if not properties and additional in (True, {}):
            return self._rules.primitive("object")
        required = schema.get("required", [])
        first = [name for name in properties if isinstance(required, list) and name in required]
        rest = [name for name in properties if name not in first]
        pairs = {name: self._pair(name, value, path) for name, value in properties.items()}
        optional = [f"({_COMMA} {pairs[name]})?" for name in rest]
        alone = [pairs[name] for name in rest]
        if additional is not False:
            pair = self._further_pair(list(properties), additional, path)
            optional.append(f"({_COMMA} {pair})*")
            alone.append(pair)
        return self._members([pairs[name] for name in first], optional, alone)

    def _members(self, required: list[str], optional: list[str], alone: list[str]) -> str:
        """`optional` come with their commas in front; `alone` are the same without, to begin with."""
        tails = ["" for _ in alone]
        for i in reversed(range(len(optional) - 1)):
            tails[i] = self._rules.add("rest", f"{optional[i + 1]} {tails[i + 1]}".rstrip())
        if optional and optional[-1].endswith("*"):  # any number of further members, also behind the first
            tails[-1] = optional[-1]
        if required:
            after = " ".join(optional)
            inner = f" {_COMMA} ".join(required) + (f" {after}" if after else "")
        else:
            beginnings = [f"{pair} {tail}".rstrip() for pair, tail in zip(alone, tails, strict=True)]
            inner = f"({' | '.join(beginnings)})?" if beginnings else ""
        return " ".join(filter(None, ['"{" space', inner, 'space "}"' if inner else '"}"']))

    def _pair(self, name: str, value: object, path: str) -> str:
        rule = self._named(value, f"{path}/properties/{name}", name)
        return self._rules.add(f"{name}-kv", f'{_constant(name, path)} space ":" space {rule}')

    def _further_pair(self, names: list[str], additional: object, path: str) -> str:
        value = self._named(additional or True, f"{path}/additionalProperties", "additional")
        key = self._other_key(names) if names else self._rules.primitive("string")
        return self._rules.add("additional-kv", f'{key} space ":" space {value}')

    def _other_key(self, names: list[str]) -> str:
        """A string that is none of `names`: the trie of their notation, left at some character."""
        trie: dict[str, Any] = {}
        for name in names:
            if len(name) > _LONGEST_KEY:
                raise _SchemaError("#", f"a property's name has more than {_LONGEST_KEY} characters")
            node = trie
            for character in _units(json.dumps(name, ensure_ascii=False)[1:-1]):
                node = node.setdefault(character, {})
            node[""] = {}
        return self._rules.add("other-key", rf'"\"" {self._unlike(trie)} "\""')

    def _unlike(self, node: dict[str, Any]) -> str:
        char = self._rules.primitive("char")
        parts = [f"{literal(unit)} {self._unlike(inner)}" for unit, inner in node.items() if unit]
        plain = [unit for unit in node if len(unit) == 1]
        escaped = [unit for unit in node if len(unit) > 1]
        others = r"[^\"\\\x7F\x00-\x1F" + "".join(f"\\U{ord(unit):08X}" for unit in plain) + "]"
        parts.append(f"{others} {char}*")
        if not escaped:
            parts.append(rf'[\\] (["\\bfnrt] | "u" [0-9a-fA-F]{{4}}) {char}*')
        if "" not in node:
            parts.append('""')
        return self._rules.add("unlike", " | ".join(parts))

    def _array(self, schema: Schema, path: str) -> str:
        keyword = "items" if "items" in schema else "prefixItems"
        items = schema.get(keyword, True)
        if isinstance(items, list):
            names = [self._named(item, f"{path}/{keyword}/{i}", "item") for i, item in enumerate(items)]
            inner = f" {_COMMA} ".join(names)
            return f'"[" space {inner} space "]"' if inner else '"[" space "]"'
        least, most = _count(schema, "minItems", path) or 0, _count(schema, "maxItems", path)
        if most is not None and most < least:
            raise _SchemaError(path, "maxItems is less than minItems")
        if items is True and not least and most is None:
            return self._rules.primitive("array")
        if most == 0 or items is False:
            return '"[" space "]"'
        inner = repeated(self._named(items, f"{path}/{keyword}", "item"), least, most, _COMMA)
        return f'"[" space {inner} space "]"'

    def _string(self, schema: Schema, path: str) -> str:
        if (pattern := schema.get("pattern")) is not None:
            return self._pattern(pattern, path)
        form = schema.get("format")
        if isinstance(form, str) and (form in _FORMATS or form in {f"uuid{i}" for i in range(1, 6)}):
            return self._rules.primitive(form if form in _FORMATS else "uuid")
        least, most = _count(schema, "minLength", path) or 0, _count(schema, "maxLength", path)
        if most is not None and most < least:
            raise _SchemaError(path, "maxLength is less than minLength")
        if not least and most is None:
            return self._rules.primitive("string")
        inner = repeated(self._rules.primitive("char"), least, most)
        return " ".join(filter(None, [r'"\""', inner, r'"\""']))

    def _pattern(self, pattern: object, path: str) -> str:
        if not isinstance(pattern, str):
            raise _SchemaError(path, "pattern must be a string")
        try:
            body = pattern_body(pattern, "char")
        except UnsupportedPatternError:
            return self._rules.primitive("string")
        except InvalidPatternError as error:
            raise _SchemaError(path, f"pattern {pattern!r}: {error}") from error
        self._rules.primitive("char")
        return rf'"\"" {body} "\""'

    def _integer(self, schema: Schema, path: str) -> str:
        least = _bound(schema, "minimum", path, math.ceil)
        if least is None and (above := _bound(schema, "exclusiveMinimum", path, math.floor)) is not None:
            least = above + 1
        most = _bound(schema, "maximum", path, math.floor)
        if most is None and (below := _bound(schema, "exclusiveMaximum", path, math.ceil)) is not None:
            most = below - 1
        if least is None and most is None:
            return self._rules.primitive("integer")
        if least is not None and most is not None and least > most:
            raise _SchemaError(path, "maximum is less than minimum")
        return integer_between(least, most)

    # References

    def _resolve(self, reference: object, path: str) -> object:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise _SchemaError(path, f"$ref {reference!r}: only references into this schema are followed")
        target = self._root
        for part in reference[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise _SchemaError(path, f"cannot resolve $ref {reference}")
        return target

    def _target(self, schema: object, path: str) -> object:
        """What is meant where `schema` is a reference, or one to a reference."""
        for _ in range(_MOST_RESOLVED):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = self._resolve(schema["$ref"], path)
        raise _SchemaError(path, "a $ref that leads nowhere")


class _Merged:
    """The parts of an `allOf` as one schema, as llama.cpp has it: what their `properties` name is required,
    except what stands in an `anyOf` among them; of several enums what all of them name is left.
    """

    def __init__(self, target: Callable[[object, str], object], path: str) -> None:
        self._target = target
        self._path = path
        self._properties: Schema = {}
        self._required: list[str] = []
        self._enums: list[list[Any]] = []
        self._others: Schema = {}
        self._n_parts = 0

    def of(self, parts: list[object]) -> Schema:
        for part in parts:
            self._add(part, 0, required=True)
        merged = {**self._others}
        if self._properties:
            merged |= {"properties": self._properties, "required": self._required}
        if self._enums:
            first, *others = self._enums
            merged["enum"] = [value for value in first if all(value in other for other in others)]
        return merged

    def _add(self, part: object, depth: int, *, required: bool) -> None:
        self._n_parts += 1
        if self._n_parts > _MOST_PARTS or depth > _MOST_RESOLVED:
            raise _SchemaError(self._path, "allOf refers to itself")
        schema = self._target(part, self._path)
        if schema is True:
            return
        if not isinstance(schema, dict):
            raise _SchemaError(self._path, "a schema is an object")
        for keyword in schema.keys() & {"allOf", "anyOf", "oneOf"}:
            for inner in _list(schema, keyword, self._path):
                self._add(inner, depth + 1, required=required and keyword == "allOf")
        self._take(schema, required=required)

    def _take(self, schema: Schema, *, required: bool) -> None:
        if isinstance(schema.get("properties"), dict):
            self._properties |= schema["properties"]
            self._required += list(schema["properties"]) if required else []
        if isinstance(schema.get("enum"), list):
            self._enums.append(schema["enum"])
        if "const" in schema:
            self._enums.append([schema["const"]])
        if required:
            taken = {"allOf", "anyOf", "oneOf", "properties", "required", "enum", "const"}
            self._others |= {key: value for key, value in schema.items() if key not in taken}


_CONSTRAINING = {
    *("$ref", "anyOf", "oneOf", "const", "enum", "properties", "additionalProperties"),
    *("items", "prefixItems", "minItems", "maxItems", "pattern", "minLength", "maxLength", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}


def _type_of(schema: Schema) -> object:
    """What is written, or what the other keywords are about; None: anything."""
    if (written := schema.get("type")) is not None:
        return written
    if "properties" in schema or schema.get("additionalProperties", True) is not True:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if schema.keys() & _STRING_KEYWORDS or schema.get("format") in [*_FORMATS]:
        return "string"
    return None


def _constant(value: object, path: str) -> str:
    try:
        return literal(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    except ValueError as error:
        raise _SchemaError(path, f"{value!r} is no JSON value") from error


def _list(schema: Schema, keyword: str, path: str) -> list[Any]:
    values = schema[keyword]
    if not isinstance(values, list) or not values:
        raise _SchemaError(path, f"{keyword} must be a list that is not empty")
    return values


def _count(schema: Schema, keyword: str, path: str) -> int | None:
    value = schema.get(keyword)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise _SchemaError(path, f"{keyword} must be a non-negative integer")


def _bound(schema: Schema, keyword: str, path: str, towards: Callable[[float], int]) -> int | None:
    """A bound of integers: a fractional one as the next integer that it admits."""
    value = schema.get(keyword)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return towards(value)
    raise _SchemaError(path, f"{keyword} must be a number")


def _is_name(expression: str) -> bool:
    return all(character.isalnum() or character == "-" for character in expression)


def _units(notation: str) -> list[str]:
    """The characters of a JSON string, escape sequences whole."""
    units, at = [], 0
    while at < len(notation):
        n = 1 if notation[at] != "\\" else 6 if notation[at + 1] == "u" else 2
        units.append(notation[at : at + n])
        at += n
    return units
