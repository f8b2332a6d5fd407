"""Replaces `propertyNames` of a JSON schema by keywords that a grammar can express."""

from typing import Any

from lead.grammar.references import READ, Schema, SchemaError

_LENGTHS = {"minLength", "maxLength"}
_FORMATS = {
    "uuid": r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    "date": r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$",
}
"""Patterns for formats; each matches only texts of the format, but not all of them."""


def with_named_properties(schema: Schema, names: list[Schema], path: str) -> Schema:
    """Return `schema` with other keywords in place of its `propertyNames`.

    names: the schemas for a name, all of which apply. Raises SchemaError, which names `path`, if that is
    impossible.
    """
    rest = {keyword: value for keyword, value in schema.items() if keyword != "propertyNames"}
    said = [
        (keyword, each[keyword]) for each in names for keyword in each if keyword in READ - {"$ref", "type"}
    ]
    if not said:
        return rest
    is_simple = "patternProperties" not in schema and len(dict(said)) == len(said)
    properties, further = schema.get("properties", {}), schema.get("additionalProperties", True)
    if is_simple and isinstance(choices := _choices(dict(said)), list) and isinstance(properties, dict):
        named = {name: properties.get(name, further) for name in choices if isinstance(name, str)}
        return {**rest, "properties": named, "additionalProperties": False}
    pattern = _pattern(dict(said))
    if not (is_simple and pattern) or properties:
        raise SchemaError(
            f"{path}/propertyNames: only enum and const are supported. If the schema has no properties, "
            "propertyNames can also have pattern, minLength, maxLength, or the format uuid or date"
        )
    return {**rest, "patternProperties": {pattern: further}, "additionalProperties": False}


def _choices(said: Schema) -> Any:
    return (
        said.get("enum", [said.get("const")]) if len(said) == 1 and said.keys() <= {"enum", "const"} else None
    )


def _pattern(said: Schema) -> str:
    """Return a pattern for the names; empty if there is none."""
    if said.keys() <= _LENGTHS:
        return rf"^[\s\S]{{{int(said.get('minLength', 0))},{said.get('maxLength', '')}}}$"
    if said.keys() == {"format"}:
        return _FORMATS.get(str(said["format"]), "")
    return str(said["pattern"]) if said.keys() == {"pattern"} else ""
