import json

import pytest

from lead.grammar import JSON_OBJECT, schema_to_gbnf
from lead.settings.limits import RequestLimits
from shared.errors import RequestError

LIMITS = RequestLimits()
TWO = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}
MORE = {"properties": {"abc": {"type": "null"}}, "additionalProperties": {"type": "boolean"}}
SMALL = {"type": "integer", "minimum": -5, "maximum": 123}
NODE = {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}}
SHORT = {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 3}

ACCEPTED = [
    (JSON_OBJECT, '{"a":[1,{"b":null}],"c":"\\u00e4"}'),
    (JSON_OBJECT, "{}"),
    ({}, "3"),
    (True, '"text"'),
    (TWO, '{"a":-3,"b":true}'),
    (TWO, '{"b":true}'),
    (TWO, '{ "a": 3 }'),
    (TWO, "{}"),
    ({**TWO, "required": ["b"]}, '{"b":true,"a":3}'),
    (MORE, '{"abc":null,"x":true,"abcd":false}'),
    (MORE, '{"ab":true}'),
    (MORE, '{"":true}'),
    (SMALL, "-5"),
    (SMALL, "0"),
    (SMALL, "123"),
    ({"type": "integer", "exclusiveMinimum": 1.5}, "2"),
    ({"type": "number"}, "-1.5e10"),
    ({"const": 'a\\b"\n'}, json.dumps('a\\b"\n')),
    ({"enum": [1, None, "x", {"a": [1]}]}, '{"a":[1]}'),
    (SHORT, "[null]"),
    (SHORT, "[null,null, null]"),
    ({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}]}, "[null,true]"),
    ({**NODE, "$ref": "#/$defs/node"}, '{"next":{"next":{}}}'),
    ({"properties": {"a/b~c": {"type": "null"}, "d": {"$ref": "#/properties/a~1b~0c"}}}, '{"d":null}'),
    ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "true"),
    ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "null"),
    ({"type": ["string", "null"]}, "null"),
    ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, '{"a":1,"b":2}'),
    ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "2"),
    ({"allOf": [{"type": "string"}], "description": "a name"}, '"x"'),
    ({"type": "string", "minLength": 2, "maxLength": 3}, '"äö"'),
    ({"type": "string", "maxLength": 5000}, '"ab"'),
    ({"type": "string", "format": "date"}, '"2024-02-29"'),
    ({"type": "string", "format": "time"}, '"23:59:59.123+01:00"'),
    ({"type": "string", "format": "date-time"}, '"2024-02-29T01:02:03Z"'),
    ({"type": "string", "format": "uuid"}, '"123e4567-e89b-12d3-a456-426614174000"'),
    ({"type": "string", "format": "email"}, '"anything"'),
    ({"type": "string", "pattern": "^(?=a)b$"}, '"look-around is let pass"'),
]

REFUSED = [
    (JSON_OBJECT, "[]"),
    (TWO, '{"c":1}'),
    (TWO, '{"b":true,"a":3}'),
    ({**TWO, "required": ["a"]}, '{"b":true}'),
    (MORE, '{"abc":true}'),
    (SMALL, "-6"),
    (SMALL, "124"),
    (SMALL, "007"),
    ({"const": 1}, "2"),
    (SHORT, "[]"),
    (SHORT, "[null,null,null,null]"),
    ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "1"),
    ({"type": "string", "minLength": 2, "maxLength": 3}, '"abcd"'),
    ({"type": "string"}, '"a\nb"'),
    ({"type": "object"}, '{"a":1' + "\n" * 9 + "}"),
]

WRONG = [
    (3, "a schema is an object"),
    ({"type": "text"}, "unrecognized type 'text'"),
    ({"type": []}, "type must be a list that is not empty"),
    ({"$ref": "#/nowhere"}, "cannot resolve"),
    ({"$ref": "https://example.org/schema"}, "into this schema"),
    ({"$ref": "#"}, "begin with itself"),
    ({"allOf": [{"$ref": "#"}, {}]}, "refers to itself"),
    ({"enum": []}, "enum must be"),
    ({"anyOf": 3}, "anyOf must be"),
    ({"properties": {"a": {"properties": []}}}, "#/properties/a: properties must be an object"),
    ({"type": "integer", "minimum": "3"}, "minimum must be a number"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "maximum is less than minimum"),
    ({"items": {}, "minItems": -1}, "minItems must be"),
    ({"items": {}, "minItems": 3000}, "repetitions"),
    ({"pattern": "("}, "unbalanced parentheses"),
    ({"const": float("inf")}, "no JSON value"),
    ({"const": "\ud800"}, "surrogate"),
]


@pytest.mark.parametrize(("schema", "text"), ACCEPTED)
def test_what_a_schema_allows_can_be_written(accepts, schema, text):
    assert accepts(schema_to_gbnf(schema, LIMITS), text)


@pytest.mark.parametrize(("schema", "text"), REFUSED)
def test_what_a_schema_does_not_allow_cannot_be_written(accepts, schema, text):
    assert not accepts(schema_to_gbnf(schema, LIMITS), text)


@pytest.mark.parametrize(("schema", "message"), WRONG)
def test_a_wrong_schema_is_refused_with_what_is_wrong(schema, message):
    with pytest.raises(RequestError, match=r"^response_format: ") as caught:
        schema_to_gbnf(schema, LIMITS)
    assert message in str(caught.value)
    assert caught.value.param == "response_format"


def test_the_error_names_the_field_that_the_schema_came_in():
    with pytest.raises(RequestError) as caught:
        schema_to_gbnf({"type": "text"}, LIMITS, "json_schema")
    assert caught.value.param == "json_schema"


def test_a_schema_may_only_be_so_deep():
    schema = {"type": "null"}
    for _ in range(40):
        schema = {"items": schema}
    schema_to_gbnf(schema, RequestLimits(max_schema_depth=41))
    with pytest.raises(RequestError, match="nested more than 20 levels"):
        schema_to_gbnf(schema, RequestLimits(max_schema_depth=20))


def test_a_chain_of_references_takes_no_recursion():
    definitions = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(1500)}
    definitions["d1500"] = {"type": "null"}
    schema_to_gbnf({"$defs": definitions, "$ref": "#/$defs/d0"}, RequestLimits(max_grammar_bytes=1 << 20))
