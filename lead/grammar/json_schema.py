"""A client's JSON schema, checked and made ready for llguidance.

Its meaning is that of JSON Schema but for three things, which are llama.cpp's. An object has only the
properties that its schema names, unless that says something about others. A schema without a type gets the
one that its keywords are about. What no grammar expresses (`not`, `if`, `uniqueItems`, look-around in a
`pattern`) is let pass. What llguidance recurses into or multiplies is bounded here.
"""

import json
import re
from typing import Any

from lead.grammar.lark import check_size
from lead.grammar.references import ALTERNATIVES, References, Schema, SchemaError, below, depth
from lead.settings.limits import RequestLimits
from shared.errors import RequestError

JSON_OBJECT: dict[str, Any] = {"type": "object"}
"""The schema of OpenAI's `json_object`: any object."""

_MAX_PATTERN = 400
"""Characters of a pattern: with some longer ones a mask takes seconds."""
_MAX_PATTERNS = 8
"""Patterns that one string has to match: their automata multiply."""
_MAX_CONSTANT = 8192
"""Characters of one value of `const` or `enum`."""
_MAX_NUMBER = (1 << 53) - 1
"""In both directions: larger bounds are rounded. Integers without bounds get these: a model may write
digits without end."""
_MAX_ADDED_NAMES = 30_000
"""Properties that all objects of a schema get because another schema of the same value names them."""

_FURTHER = {"additionalProperties", "patternProperties", "unevaluatedProperties"}
_LOWER = ("minimum", "exclusiveMinimum")
_UPPER = ("maximum", "exclusiveMaximum")
_ABOUT = {
    "object": {"properties", "required", "additionalProperties", "patternProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"pattern", "minLength", "maxLength", "format"},
    "number": {*_LOWER, *_UPPER, "multipleOf"},
}
_WITHOUT_TYPE = {"type", "$ref", "const", "enum"}
"""What decides about the type itself."""
_BY_NAME = {"properties", "patternProperties", "$defs", "definitions"}

_NOT_REGULAR = re.compile(r"\\[1-9bBk]|\(\?<?[=!]")
"""Back references, look-around and word boundaries."""


def check_schema(schema: object, limits: RequestLimits, param: str = "response_format") -> Schema:
    """What llguidance is given for `schema`; raises RequestError naming `param`."""
    # A schema inside a schema is two levels of JSON: properties → name.
    if depth(schema, 2 * limits.max_schema_depth) > 2 * limits.max_schema_depth:
        raise RequestError(
            f"{param}: the schema is nested more than {limits.max_schema_depth} levels deep", param
        )
    check_size(json.dumps(schema), limits, param)  # before anything that takes time
    try:
        return _Reader(schema).read()
    except SchemaError as error:
        raise RequestError(f"{param}: {error}", param) from error


class _Reader:
    def __init__(self, root: object) -> None:
        self._root = root
        self._references = References(root)
        self._n_added = 0

    def read(self) -> Schema:
        root = self._visit(self._root, "#")
        if root is True:
            return {}
        if not isinstance(root, dict):
            raise SchemaError("a schema is an object")
        return root

    def _visit(
        self, schema: object, path: str, names: frozenset[str] = frozenset(), *, is_part: bool = False
    ) -> object:
        """A copy that allows only its own properties and `names`; a part of another schema stays open."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise SchemaError(f"{path}: a schema is an object")
        is_part = is_part or path in self._references.merged
        parts = list(self._references.parts(schema))
        is_combined = len(parts) > 1 or any(keyword in schema for keyword in ALTERNATIVES)
        _check_constants(schema, path)
        _check_pattern(schema, path)
        if is_combined:
            self._check_patterns(schema, path)
        own = _names(parts) if len(schema) > 1 or "$ref" not in schema else frozenset()
        copy: Schema = {
            keyword: self._copy_value(schema, keyword, below(path, keyword), names | own, is_part=is_part)
            for keyword in schema
            if keyword != "pattern" or _is_regular(schema["pattern"])
        }
        copy |= _type(schema) | _bounds(schema, path)
        if own and not is_part and not _is_open(parts, is_combined=is_combined):
            copy |= self._closed(copy.get("properties", {}), own | names)
        return copy

    def _copy_value(
        self, schema: Schema, keyword: str, path: str, names: frozenset[str], *, is_part: bool
    ) -> object:
        """The value of a keyword, with the schemas inside it copied. names, is_part: for its alternatives."""
        value = schema[keyword]
        if keyword in ALTERNATIVES:
            return self._copy_all(_list(value, path), path, names, is_part=is_part)
        if keyword == "allOf":
            return self._copy_all(_list(value, path), path, is_part=True)
        if keyword in _BY_NAME:
            if not isinstance(value, dict):
                raise SchemaError(f"{path} must be an object")
            return {name: self._visit(each, below(path, name)) for name, each in value.items()}
        if keyword in {"items", "prefixItems"} and isinstance(value, list):
            return self._copy_all(value, path)
        if keyword in {"items", "additionalProperties"}:
            return self._visit(value, path)
        return value

    def _copy_all(
        self, values: list[Any], path: str, names: frozenset[str] = frozenset(), *, is_part: bool = False
    ) -> list[object]:
        return [self._visit(value, below(path, i), names, is_part=is_part) for i, value in enumerate(values)]

    def _closed(self, properties: Schema, names: frozenset[str]) -> Schema:
        """The keywords that allow `names` only."""
        added = names - properties.keys()
        self._n_added += len(added)
        if self._n_added > _MAX_ADDED_NAMES:
            raise SchemaError("too many properties from schemas that are referred to again and again")
        return {"properties": properties | dict.fromkeys(sorted(added), True), "additionalProperties": False}

    def _check_patterns(self, schema: Schema, path: str) -> None:
        parts = self._references.parts(schema, with_alternatives=True)
        if sum("pattern" in part for part in parts) > _MAX_PATTERNS:
            raise SchemaError(f"{path}: more than {_MAX_PATTERNS} patterns for one string")


def _names(parts: list[Schema]) -> frozenset[str]:
    """The properties that any of the parts names."""
    given = [part.get(keyword) for part in parts for keyword in ("properties", "required")]
    return frozenset(
        name for value in given if isinstance(value, dict | list) for name in value if isinstance(name, str)
    )


def _is_open(parts: list[Schema], *, is_combined: bool) -> bool:
    """Whether one of `parts` constrains additional properties, or its alternatives will."""
    return any(
        part.keys() & _FURTHER or (is_combined and any(keyword in part for keyword in ALTERNATIVES))
        for part in parts
    )


def _type(schema: Schema) -> Schema:
    """The `type` of a schema: each once, as it is compiled once for each; without one what it is about."""
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


def _is_regular(pattern: object) -> bool:
    return not isinstance(pattern, str) or not _NOT_REGULAR.search(pattern.replace("\\\\", ""))


def _check_pattern(schema: Schema, path: str) -> None:
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and _is_regular(pattern) and len(pattern) > _MAX_PATTERN:
        raise SchemaError(
            f"{path}: a pattern of {len(pattern)} characters; at most {_MAX_PATTERN} are accepted"
        )


def _bounds(schema: Schema, path: str) -> Schema:
    """Bounds that are no number of 53 bits made tighter, and bounds for integers that have none."""
    types = schema.get("type")
    is_integer = "integer" in (types if isinstance(types, list) else [types]) and "multipleOf" not in schema
    bounds = {}
    for keywords, sign in ((_LOWER, 1), (_UPPER, -1)):
        given = [keyword for keyword in keywords if keyword in schema]
        for keyword in given:
            if _is_too_large(schema[keyword], keyword, sign, path):
                bounds[keyword] = -sign * _MAX_NUMBER
        if is_integer and not given:
            bounds[keywords[0]] = -sign * _MAX_NUMBER
    return bounds


def _is_too_large(bound: object, keyword: str, sign: int, path: str) -> bool:
    """Whether a bound (sign 1: a lower one) excludes nothing; SchemaError if it excludes everything."""
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
        raise SchemaError(f"{path} must be a list that is not empty")
    return value
