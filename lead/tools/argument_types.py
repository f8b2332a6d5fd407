"""The JSON types that a schema allows for a value."""

from collections.abc import Callable, Mapping
from typing import Any

from lead.grammar.references import Addresses, SchemaError
from lead.tools.notation import type_name

Types = frozenset[str]
"""Names of JSON types."""

ANY_TYPE: Types = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
STRING: Types = frozenset({"string"})
_MAX_DEPTH = 8


def argument_types(parameters: object) -> Mapping[str, Types]:
    """Return the types of those arguments of a tool that its `parameters` describe, by name."""
    if not isinstance(parameters, dict) or not isinstance(given := parameters.get("properties"), dict):
        return {}
    addresses = Addresses(parameters)
    return {name: types_of(each, addresses) for name, each in given.items()}


def kinds_of(value: object) -> Types:
    """Return the JSON types of a value: two for a whole number (integer and number), else one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_whole = is_number and float(value).is_integer()  # type: ignore[arg-type]  # a number, as was just asked
    return frozenset({"integer", "number"}) if is_whole else frozenset({type_name(value)})


def types_of(schema: object, addresses: Addresses | None = None, depth: int = 0) -> Types:
    """Return the types that `schema` allows; all types if it names none.

    addresses: the references of the whole schema.
    """
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return ANY_TYPE
    known = addresses or Addresses(schema)

    def inner(each: object) -> Types:
        return types_of(each, known, depth + 1)

    said = [inner(_target(schema["$ref"], known))] if "$ref" in schema else []
    said += _said_by_types(schema) + _said_by_values(schema) + _said_by_parts(schema, inner)
    return ANY_TYPE.intersection(*said) or ANY_TYPE


def _target(reference: object, addresses: Addresses) -> object:
    try:
        return addresses.resolve(reference)[1]
    except SchemaError:
        return None


def _said_by_types(schema: Mapping[str, Any]) -> list[Types]:
    given = schema.get("type")
    names = frozenset(each for each in given if isinstance(each, str)) if isinstance(given, list) else {given}
    types = ANY_TYPE & names
    return [types | {"integer"} if "number" in types else types] if types else []


def _said_by_values(schema: Mapping[str, Any]) -> list[Types]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return [frozenset[str]().union(*map(kinds_of, values))] if isinstance(values, list) and values else []


def _said_by_parts(schema: Mapping[str, Any], inner: Callable[[object], Types]) -> list[Types]:
    several = (schema.get(name) for name in ("anyOf", "oneOf"))
    said = [frozenset[str]().union(*map(inner, ways)) for ways in several if isinstance(ways, list) and ways]
    if isinstance(parts := schema.get("allOf"), list):
        said += map(inner, parts)
    return said
