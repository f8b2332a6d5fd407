import pytest

from lead.grammar.property_names import with_named_properties
from lead.grammar.references import SchemaError
from tests.lead.grammar.schemas import grammar_of

COLORS = {"$defs": {"color": {"enum": ["red", "blue"]}}}
BY_COLOR = {**COLORS, "type": "object", "propertyNames": {"$ref": "#/$defs/color"}}
UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (BY_COLOR, '{"blue":1}', '{"green":1}'),
        ({**BY_COLOR, "additionalProperties": {"type": "null"}}, '{"red":null}', '{"red":1}'),
        ({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}, '{"abc":1}', '{"ABC":1}'),
        ({"type": "object", "propertyNames": {"minLength": 1.0, "maxLength": 2}}, '{"é":1}', '{"abc":1}'),
        ({"type": "object", "propertyNames": {"format": "uuid"}}, f'{{"{UUID}":1}}', '{"a":1}'),
        ({"propertyNames": {"type": "string"}, "properties": {"a": {"type": "null"}}}, '{"a":null}', "3"),
        ({"propertyNames": {"const": "a"}, "properties": {"a": {"type": "null"}}}, '{"a":null}', '{"a":1}'),
    ],
)
def test_names_are_those_that_the_schema_of_names_allows(accepts, schema, fits, does_not):
    grammar = grammar_of(schema)
    assert accepts(grammar, fits)
    assert not accepts(grammar, does_not)


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({}, [{"not": {}, "format": "email"}]),
        ({}, [{"pattern": "a", "maxLength": 3}]),
        ({"properties": {"a": True}}, [{"pattern": "a"}]),
        ({"patternProperties": {"a": True}}, [{"enum": ["a"]}]),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(schema, names):
    with pytest.raises(SchemaError, match=r"^#/x/propertyNames: "):
        with_named_properties({**schema, "propertyNames": names[0]}, names, "#/x")
