"""Checks a client's JSON schema and converts it for llguidance.

Its meaning is that of JSON Schema, with three exceptions as in llama.cpp. An object has only the properties
that its schema names, unless the schema has a keyword for other properties. A schema without a type gets the
type to which its keywords apply. Keywords that no grammar expresses (`not`, `if`, `uniqueItems`, `contains`)
are ignored.

Keywords that a grammar expresses only in part (look-around in a `pattern`, `propertyNames`, `$dynamicRef`)
are refused unless they are within that part. Annotations are dropped, and so are definitions without
references. The sizes that llguidance recurses into or multiplies are bounded here.
"""

import json
from decimal import Decimal
from typing import Any

from lead.grammar.lark import check_size
from lead.grammar.numbers import decimal_of
from lead.grammar.patterns import NotRegularError, plain_patterns
from lead.grammar.property_names import with_named_properties
from lead.grammar.references import (
    ALTERNATIVES,
    BY_NAME,
    READ,
    SINGLE,
    UNEVALUATED,
    References,
    Schema,
    SchemaError,
    below,
    depth,
    is_wrapper,
)
from lead.settings.limits import RequestLimits
from shared.errors import RequestError

JSON_OBJECT: dict[str, Any] = {"type": "object"}
"""The schema of OpenAI's `json_object`: any object."""

_MAX_SCHEMAS = 20_000
"""The maximum number of schemas inside a schema, which take about 0.5 s to read."""
_MAX_PATTERN = 400
"""The maximum number of characters of a pattern: with some longer patterns a mask takes seconds."""
_MAX_PATTERNS = 8
"""The maximum number of patterns that a string must match, because their automata multiply."""
_MAX_CONSTANT = 8192
"""The maximum size of one value of `const` or `enum`, in bytes of JSON."""
_MAX_NUMBER = (1 << 53) - 1
"""The maximum magnitude of bounds; looser bounds are tightened to it. Integers without bounds are bounded by
it, because a model may write digits without end.
"""
_MAX_MULTIPLE = 5000
"""The maximum of `multipleOf` without its decimal point: the automaton has a state for each remainder."""
_MAX_MULTIPLIED = 10**16
"""The bounds given to a `multipleOf` that has none; they are cheap to compile."""
_MAX_DECIMALS = 9
"""The maximum number of decimals of `multipleOf`, for which llguidance has 32 bits."""
_MAX_ADDED_NAMES = 30_000
"""The maximum number of properties that the objects of a schema get from other schemas of the same value."""

_FURTHER = {"additionalProperties", "patternProperties"}
_LOWER = ("minimum", "exclusiveMinimum")
_UPPER = ("maximum", "exclusiveMaximum")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_ABOUT = {
    "object": {"properties", "required", *_FURTHER, "unevaluatedProperties", "propertyNames"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"},
    "string": {"pattern", "minLength", "maxLength", "format"},
    "number": {*_LOWER, *_UPPER, "multipleOf"},
}
_WITHOUT_TYPE = {"type", "$ref", "const", "enum"}
"""Keywords that determine the type without a `type`, and `type` itself."""
_REFUSED = ("$dynamicRef", "$recursiveRef")
_LONGEST_FORMATS = {"date-time": 35, "time": 24, "duration": 40}
"""The maximum length that strings get in formats with any number of digits."""


def check_schema(schema: object, limits: RequestLimits, param: str = "response_format") -> Schema:
    """Convert `schema` for llguidance; raises RequestError naming `param`."""
    # A schema inside a schema is two levels of JSON: properties → name.
    if depth(schema, 2 * limits.max_schema_depth) > 2 * limits.max_schema_depth:
        raise RequestError(
            f"{param}: the schema is nested more than {limits.max_schema_depth} levels deep", param
        )
    try:
        checked = _SchemaReader(schema).read()
    except SchemaError as error:
        raise RequestError(f"{param}: {error}", param) from error
    check_size(json.dumps(checked), limits, param)
    return checked


class _SchemaReader:
    def __init__(self, root: object) -> None:
        self._root = root
        self._references = References(root)
        self._n_added = 0
        self._n_visited = 0

    def read(self) -> Schema:
        root = self._visit(self._root, "#")
        if root is True:
            return {}
        if not isinstance(root, dict):
            raise SchemaError("a schema must be an object")
        definitions = {
            self._references.name(pointer): self._visit(target, pointer)
            for pointer, target in self._references.targets.items()
        }
        return {"$defs": definitions, **root} if definitions else root

    def _visit(
        self,
        schema: object,
        path: str,
        names: frozenset[str] = frozenset(),
        *,
        is_part: bool = False,
        closes: bool = False,
    ) -> object:
        """Return a copy that allows only its own properties and `names`, unless it is a part of another
        schema. closes: allow only these properties, even if there are none.
        """
        schema = self._checked(schema, path)
        if isinstance(schema, bool):
            return schema
        if is_wrapper(schema):
            inner = below(below(path, "allOf"), 0)
            return self._visit(schema["allOf"][0], inner, names, is_part=is_part, closes=closes)
        # The properties that the schema names itself; and whether its parts can be read together.
        is_part = is_part or path in self._references.merged
        parts = list(self._references.parts(schema))
        if len(parts) > 1 or any(keyword in schema for keyword in ALTERNATIVES):
            self._check_patterns(schema, path)
        named = _names(parts) if schema.keys() != {"$ref"} else frozenset()
        own = names | named
        closes |= schema.get("unevaluatedProperties") is False
        # First each keyword by itself, then keywords that follow from several.
        copy: Schema = {
            keyword: self._copy_value(schema, keyword, path, own, is_part=is_part, closes=closes)
            for keyword in schema
            if keyword not in UNEVALUATED
        }
        names_some = bool(named) or "patternProperties" in schema
        copy |= (
            _type(schema)
            | _bounds(schema, path)
            | _counts(schema)
            | _length(schema)
            | self._last_items(schema, path)
        )
        _add_patterns(copy, path)
        if self._is_closed(parts, path, closes=closes, names_some=names_some and not is_part):
            copy |= self._closed(copy, own, schema.get("unevaluatedProperties", False), path)
        return copy

    def _checked(self, schema: object, path: str) -> Schema | bool:
        """Count and check a schema; return its keywords as `_readable` does. Raises SchemaError."""
        self._n_visited += 1
        if self._n_visited > _MAX_SCHEMAS:
            raise SchemaError(f"more than {_MAX_SCHEMAS} schemas in all")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise SchemaError(f"{path}: a schema must be an object")
        _check_keywords(schema, path)
        return self._readable(schema, path)

    def _copy_value(
        self, schema: Schema, keyword: str, path: str, names: frozenset[str], *, is_part: bool, closes: bool
    ) -> object:
        """Return the value of a keyword, with copies of the schemas inside it. names, closes: as in `_visit`,
        for alternatives.
        """
        value, path = schema[keyword], below(path, keyword)
        if keyword == "$ref":
            return f"#/$defs/{self._references.name(self._references.resolve(value)[0])}"
        if keyword in ALTERNATIVES:
            return self._alternatives(_list(value, path), path, names, is_part=is_part, closes=closes)
        if keyword == "allOf":
            return self._copy_all(_list(value, path), path, is_part=True)
        if keyword in BY_NAME:
            if not isinstance(value, dict):
                raise SchemaError(f"{path} must be an object")
            return {name: self._visit(each, below(path, name)) for name, each in value.items()}
        if keyword in {"items", "prefixItems"} and isinstance(value, list):
            return self._copy_all(value, path)
        return self._visit(value, path) if keyword in SINGLE else value

    def _copy_all(self, values: list[Any], path: str, *, is_part: bool = False) -> list[object]:
        return [self._visit(value, below(path, i), is_part=is_part) for i, value in enumerate(values)]

    def _alternatives(
        self, values: list[Any], path: str, names: frozenset[str], *, is_part: bool, closes: bool
    ) -> list[object]:
        """Return the alternatives that a grammar can express; there must be at least one."""
        copies, problem = [], None
        for i, value in enumerate(values):
            try:
                copies.append(self._visit(value, below(path, i), names, is_part=is_part, closes=closes))
            except NotRegularError as error:
                problem = error
        if problem and not copies:
            raise problem
        return copies

    def _readable(self, schema: Schema, path: str) -> Schema:
        """Return the keywords that constrain values, with other keywords in place of `propertyNames`."""
        schema = {keyword: value for keyword, value in schema.items() if keyword in READ}
        names = schema.get("propertyNames", True)
        if names is False:
            raise SchemaError(f"{path}/propertyNames: false is not supported")
        parts = list(self._references.parts(names)) if isinstance(names, dict) else []
        counted = [{**part, **_counts(part)} for part in parts]
        return with_named_properties(schema, counted, path) if "propertyNames" in schema else schema

    def _last_items(self, schema: Schema, path: str) -> Schema:
        """Return the keywords that mean the same as `unevaluatedItems`."""
        last = schema.get("unevaluatedItems", True)
        if last is True or "items" in schema:
            return {}
        if schema.keys() & {"allOf", "$ref", *ALTERNATIVES}:
            raise SchemaError(f"{path}/unevaluatedItems beside other schemas is not supported")
        return {"items": self._visit(last, below(path, "unevaluatedItems"))}

    @staticmethod
    def _is_closed(parts: list[Schema], path: str, *, closes: bool, names_some: bool) -> bool:
        """Return whether a schema is to allow only the properties that it names. parts: the schema, then its
        parts.
        """
        schema, *others = parts
        further = schema.get("unevaluatedProperties")
        if "additionalProperties" in schema or further is True or further == {}:
            return False
        has_ways = any(keyword in part for part in parts for keyword in ALTERNATIVES)
        is_said = any(part.keys() & _FURTHER for part in others)
        if further is not None and any("patternProperties" in part for part in others):
            raise SchemaError(f"{path}/unevaluatedProperties beside patternProperties is not supported")
        if isinstance(further, dict) and (has_ways or is_said):
            raise SchemaError(f"{path}/unevaluatedProperties beside other schemas is not supported")
        if has_ways or is_said:
            return False
        return further is not None or closes or names_some

    def _closed(self, copy: Schema, names: frozenset[str], further: object, path: str) -> Schema:
        """Return the keywords that allow `names`, and other properties whose values match `further`."""
        properties = copy.get("properties", {})
        added = names - properties.keys()
        self._n_added += len(added)
        if self._n_added > _MAX_ADDED_NAMES:
            raise SchemaError("too many properties from schemas that are referenced repeatedly")
        rest = self._visit(further, below(path, "unevaluatedProperties"))
        return {"properties": properties | dict.fromkeys(sorted(added), True), "additionalProperties": rest}

    def _check_patterns(self, schema: Schema, path: str) -> None:
        parts = self._references.parts(schema, with_alternatives=True)
        if sum("pattern" in part for part in parts) > _MAX_PATTERNS:
            raise SchemaError(f"{path}: a string has more than {_MAX_PATTERNS} patterns")


def _names(parts: list[Schema]) -> frozenset[str]:
    """Return the properties that any of the parts names."""
    given = [part.get(keyword) for part in parts for keyword in ("properties", "required")]
    return frozenset(
        name for value in given if isinstance(value, dict | list) for name in value if isinstance(name, str)
    )


def _type(schema: Schema) -> Schema:
    """Return the `type` of a schema, without duplicates, because each is compiled; if missing, the type to
    which its keywords apply.
    """
    types = schema.get("type")
    if isinstance(types, list) and all(isinstance(each, str) for each in types):
        return {"type": list(dict.fromkeys(types))}
    if not schema.keys() & _WITHOUT_TYPE:
        for name, keywords in _ABOUT.items():
            if schema.keys() & keywords:
                return {"type": name}
    return {}


def _check_constants(schema: Schema, path: str) -> None:
    values = [schema["const"]] if "const" in schema else []
    values += _list(schema["enum"], below(path, "enum")) if "enum" in schema else []
    for value in values:
        try:
            size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
        except ValueError as error:
            raise SchemaError(f"{path}: {value!r} is not a JSON value") from error
        if size > _MAX_CONSTANT:
            raise SchemaError(f"{path}: a value of {size} bytes; at most {_MAX_CONSTANT} are accepted")


def _check_keywords(schema: Schema, path: str) -> None:
    for keyword in _REFUSED:
        if keyword in schema:
            raise SchemaError(f"{path}/{keyword} is not supported")
    _check_constants(schema, path)


def _add_patterns(copy: Schema, path: str) -> None:
    """Replace a pattern that has look-ahead with several that have none."""
    pattern = copy.get("pattern")
    if not isinstance(pattern, str):
        return
    if len(pattern) > _MAX_PATTERN:
        raise SchemaError(
            f"{path}: a pattern of {len(pattern)} characters; at most {_MAX_PATTERN} are accepted"
        )
    copy["pattern"], *more = plain_patterns(pattern, path)
    if len(more) >= _MAX_PATTERNS:
        raise SchemaError(f"{path}: a string has more than {_MAX_PATTERNS} patterns")
    if more:
        copy["allOf"] = [*copy.get("allOf", []), *({"pattern": each} for each in more)]


def _counts(schema: Schema) -> Schema:
    """Return, as integers, the counts that are written as floats (1.0)."""
    given = {keyword: schema[keyword] for keyword in _COUNTS if isinstance(schema.get(keyword), float)}
    return {keyword: int(value) for keyword, value in given.items() if value.is_integer()}


def _length(schema: Schema) -> Schema:
    """Return a maximum length for strings of a format, if the schema has none."""
    longest = _LONGEST_FORMATS.get(str(schema.get("format")))
    return {"maxLength": longest} if longest and "maxLength" not in schema else {}


def _bounds(schema: Schema, path: str) -> Schema:
    """Return tighter bounds instead of bounds beyond 53 bits, and bounds for unbounded integers and
    multiples.
    """
    types = schema.get("type")
    multiple = decimal_of(schema.get("multipleOf"))
    if multiple is not None:
        _check_multiple(multiple, path)
    is_integer = "integer" in (types if isinstance(types, list) else [types])
    maximum = _MAX_NUMBER if multiple is None else _MAX_MULTIPLIED
    bounds = {}
    for keywords, sign in ((_LOWER, 1), (_UPPER, -1)):
        given = [keyword for keyword in keywords if keyword in schema]
        for keyword in given:
            if _is_too_large(schema[keyword], keyword, sign, path):
                bounds[keyword] = -sign * maximum
        if not given and (is_integer or multiple is not None):
            bounds[keywords[0]] = -sign * maximum
    return bounds


def _check_multiple(multiple: Decimal, path: str) -> None:
    n_decimals = max(0, -int(multiple.normalize().as_tuple().exponent))
    if n_decimals > _MAX_DECIMALS or abs(multiple).scaleb(n_decimals) > _MAX_MULTIPLE:
        raise SchemaError(
            f"{path}/multipleOf: {multiple} is not supported: it must have at most {_MAX_DECIMALS} decimals, "
            f"and must not exceed {_MAX_MULTIPLE} when its decimal point is left out"
        )


def _is_too_large(bound: object, keyword: str, sign: int, path: str) -> bool:
    """Return whether a bound is so far out that it excludes no number; raises SchemaError if it excludes all.
    sign: 1 for a lower bound, -1 for an upper one.
    """
    if not isinstance(bound, int | float):
        return False
    excluded = sign * bound
    if excluded > _MAX_NUMBER or (excluded == _MAX_NUMBER and keyword.startswith("exclusive")):
        raise SchemaError(
            f"{path}: {keyword}: numbers beyond {sign * _MAX_NUMBER} (53 bits) are not supported"
        )
    return excluded < -_MAX_NUMBER


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise SchemaError(f"{path} must be a non-empty list")
    return value
