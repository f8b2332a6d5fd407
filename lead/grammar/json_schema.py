"""A client's JSON schema, checked and made ready for llguidance.

Its meaning is that of JSON Schema but for three things, which are llama.cpp's. An object has only the
properties that its schema names, unless that says something about others. A schema without a type gets the
one that its keywords are about. What no grammar expresses (`not`, `if`, `uniqueItems`, look-around in a
`pattern`) is let pass. What llguidance recurses into or multiplies is bounded here.
"""

import json
import re
from typing import Any

from lead.grammar.references import ALTERNATIVES, References, Schema, SchemaError, below, depth
from lead.grammar.validation import check_size
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
_WITHOUT_TYPE = {"type", "$ref", "const", "enum", "allOf", *ALTERNATIVES}
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
    """Copies a schema and checks it on the way."""

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
        copy = {key: self._inside(key, value, below(path, key)) for key, value in schema.items()}
        _check_constants(copy, path)
        _check_pattern(copy, path)
        _drop_repeated_types(copy)
        _limit_bounds(copy, path)
        _bound_integers(copy)
        parts = list(self._references.parts(schema))
        own = _names(parts) if len(schema) > 1 or "$ref" not in schema else frozenset()
        if is_combined := len(parts) > 1 or any(keyword in schema for keyword in ALTERNATIVES):
            self._check_patterns(schema, path)
        for keyword in ALTERNATIVES:
            if keyword in schema:
                copy[keyword] = self._each(schema, keyword, path, names | own, is_part=is_part)
        if "allOf" in schema:
            copy["allOf"] = self._each(schema, "allOf", path, frozenset(), is_part=True)
        _infer_type(copy)
        if not is_part and own and not _is_open(parts, is_combined=is_combined):
            self._close(copy, own | names)
        return copy

    def _each(
        self, schema: Schema, keyword: str, path: str, names: frozenset[str], *, is_part: bool
    ) -> list[object]:
        values, path = _list(schema, keyword, path), below(path, keyword)
        return [self._visit(value, below(path, i), names, is_part=is_part) for i, value in enumerate(values)]

    def _inside(self, keyword: str, value: object, path: str) -> object:
        """The value of a keyword, with the schemas inside it checked."""
        if keyword in _BY_NAME:
            if not isinstance(value, dict):
                raise SchemaError(f"{path} must be an object")
            return {name: self._visit(each, below(path, name)) for name, each in value.items()}
        if keyword in {"items", "prefixItems"} and isinstance(value, list):
            return [self._visit(each, below(path, i)) for i, each in enumerate(value)]
        if keyword in {"items", "additionalProperties"}:
            return self._visit(value, path)
        return value

    def _close(self, schema: Schema, names: frozenset[str]) -> None:
        properties = schema.get("properties", {})
        added = names - properties.keys()
        self._n_added += len(added)
        if self._n_added > _MAX_ADDED_NAMES:
            raise SchemaError("too many properties from schemas that are referred to again and again")
        schema["properties"] = properties | dict.fromkeys(sorted(added), True)
        schema["additionalProperties"] = False

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


def _infer_type(schema: Schema) -> None:
    if schema.keys() & _WITHOUT_TYPE - {"allOf", *ALTERNATIVES}:
        return
    for name, keywords in _ABOUT.items():
        if schema.keys() & keywords:
            schema["type"] = name
            return


def _check_constants(schema: Schema, path: str) -> None:
    values = [schema["const"]] if "const" in schema else []
    values += _list(schema, "enum", path) if "enum" in schema else []
    for value in values:
        try:
            size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
        except ValueError as error:
            raise SchemaError(f"{path}: {value!r} is not a JSON value") from error
        if size > _MAX_CONSTANT:
            raise SchemaError(f"{path}: a value of {size} bytes; at most {_MAX_CONSTANT} are accepted")


def _check_pattern(schema: Schema, path: str) -> None:
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return
    if _NOT_REGULAR.search(pattern.replace("\\\\", "")):
        del schema["pattern"]
        schema.setdefault("type", "string")
    elif len(pattern) > _MAX_PATTERN:
        raise SchemaError(
            f"{path}: a pattern of {len(pattern)} characters; at most {_MAX_PATTERN} are accepted"
        )


def _drop_repeated_types(schema: Schema) -> None:
    """A schema is compiled once for each type."""
    types = schema.get("type")
    if isinstance(types, list) and all(isinstance(each, str) for each in types):
        schema["type"] = list(dict.fromkeys(types))


def _bound_integers(schema: Schema) -> None:
    types = schema.get("type")
    if "integer" not in (types if isinstance(types, list) else [types]) or "multipleOf" in schema:
        return
    if not schema.keys() & set(_LOWER):
        schema["minimum"] = -_MAX_NUMBER
    if not schema.keys() & set(_UPPER):
        schema["maximum"] = _MAX_NUMBER


def _limit_bounds(schema: Schema, path: str) -> None:
    """Make bounds that are too large tighter; raises SchemaError if they would exclude every number then."""
    for keywords, sign in ((_LOWER, 1), (_UPPER, -1)):
        for keyword in keywords:
            value = schema.get(keyword)
            if not isinstance(value, int | float):
                continue
            excluded = sign * value
            if excluded > _MAX_NUMBER or (excluded == _MAX_NUMBER and keyword.startswith("exclusive")):
                raise SchemaError(
                    f"{path}: {keyword}: numbers beyond {sign * _MAX_NUMBER} (53 bits) are not supported"
                )
            if excluded < -_MAX_NUMBER:
                schema[keyword] = -sign * _MAX_NUMBER


def _list(schema: Schema, keyword: str, path: str) -> list[Any]:
    values = schema[keyword]
    if not isinstance(values, list) or not values:
        raise SchemaError(f"{path}: {keyword} must be a list that is not empty")
    return values
