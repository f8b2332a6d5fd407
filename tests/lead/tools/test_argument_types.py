import pytest

from lead.tools.argument_types import ANY_TYPE, argument_types, types_of


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, ANY_TYPE),
        (True, ANY_TYPE),
        ({"type": "string"}, {"string"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"enum": ["a", 1.5, None]}, {"string", "number", "null"}),
        ({"const": 3}, {"integer", "number"}),
        ({"anyOf": [{"type": "boolean"}, {"type": "string"}]}, {"boolean", "string"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, {"string"}),
        ({"type": "string", "anyOf": [{"minLength": 1}, {"const": "x"}]}, {"string"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}}, {"array"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, ANY_TYPE),
        ({"$ref": "#text", "$defs": {"a": {"$anchor": "text", "type": "string"}}}, {"string"}),
        ({"$ref": "#/$defs/a/items/0", "$defs": {"a": {"items": [{"type": "null"}]}}}, {"null"}),
        ({"$ref": "https://example.com/schema"}, ANY_TYPE),
        ({"type": "odd"}, ANY_TYPE),
    ],
)
def test_a_schema_says_which_types_its_values_have(schema, types):
    assert types_of(schema) == types


def test_arguments_share_the_definitions_of_their_tool():
    properties = {"a": {"$ref": "#/$defs/text"}, "b": {"type": "null"}}
    assert argument_types({"properties": properties, "$defs": {"text": {"type": "string"}}}) == {
        "a": {"string"},
        "b": {"null"},
    }


@pytest.mark.parametrize("parameters", [None, [], {}, {"properties": []}])
def test_parameters_without_properties_say_nothing(parameters):
    assert argument_types(parameters) == {}
