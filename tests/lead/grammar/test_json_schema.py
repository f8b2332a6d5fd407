import functools
import json
import random
from datetime import date
from decimal import Decimal
from enum import StrEnum
from ipaddress import IPv4Address
from typing import Annotated, Literal
from uuid import UUID

import jsonschema
import numpy as np
import pytest
from pydantic import BaseModel, Field, TypeAdapter

from lead.grammar.json_schema import JSON_OBJECT, check_schema
from lead.grammar.lark import check_grammar
from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from shared.sampling.grammar import GrammarMatcher
from tests.conftest import more
from tests.lead.grammar.schemas import SchemaMaker, grammar_of

TWO = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}
MORE = {"properties": {"abc": {"type": "null"}}, "additionalProperties": {"type": "boolean"}}
SMALL = {"type": "integer", "minimum": -5, "maximum": 123}
NODE = {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}}
SHORT = {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 3}
EITHER = {**TWO, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
KINDS = {"anyOf": [{"properties": {"x": {"type": "null"}}}, {"properties": {"y": {"type": "null"}}}]}
BASE = {"$defs": {"base": {"properties": {"id": {"type": "null"}}, "required": ["id"]}}}
DERIVED = {**BASE, "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"a": {"type": "null"}}}]}
BESIDE = {**BASE, "$ref": "#/$defs/base", "properties": {"a": {"type": "null"}}}
PAIR = {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}]}

MAX = (1 << 53) - 1
LARGE_VALUE = 1_700_000_000_000_000
"""Microseconds since 1970."""
LARGE = [
    {"type": "integer", "minimum": 1_600_000_000_000_000},
    {"type": ["integer", "null"], "exclusiveMinimum": 10**15},
    {"allOf": [{"type": "integer"}, {"minimum": 1_600_000_000_000_000}]},
]

INTEGERS = [{"type": "integer"}, {"type": ["integer", "null"]}]
"""Integers without bounds have to be in the range that every JSON parser reads exactly."""
TOO_LARGE_TO_BE_EXACT = {"type": "number", "minimum": -1e300, "maximum": (1 << 64) - 1}
KEYWORDS = ("$ref", "$id", "$anchor", "enum", "type", "properties")
ITEMS = {"prefixItems": [{"type": "null"}], "unevaluatedItems": False}
DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}]}
DIGITS = r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,4}|(?=[\d.]{1,7}0*$)\d{0,4}\.\d{0,2}0*$)"
"""The pattern that pydantic writes for a Decimal with a number of digits. No grammar can follow it."""
EITHER_DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": DIGITS}]}
COUNTS = [1.0, 1]
ACCEPTED = [
    *((each, str(n)) for each in INTEGERS for n in (MAX, -MAX)),
    *((each, str(LARGE_VALUE)) for each in LARGE),
    (TOO_LARGE_TO_BE_EXACT, "2.5"),
    *(({"type": "string", each: n}, '"a"') for each in ("minLength", "maxLength") for n in COUNTS),
    (ITEMS, "[null]"),
    (
        {"properties": {"next": {"$ref": "#"}, "value": {"type": "number"}}},
        '{"next":{"next":{},"value":1.5}}',
    ),
    ({"properties": {name: {"type": "null"} for name in KEYWORDS}}, '{"$ref":null,"type":null}'),
    *((DECIMAL, text) for text in ("1.5", '"-.5"', '"12"')),
    (EITHER_DECIMAL, "1.5"),
    (JSON_OBJECT, '{"a":[1,{"b":null}],"c":"\\u00e4"}'),
    (JSON_OBJECT, "{}"),
    ({}, "3"),
    (True, '"text"'),
    (TWO, '{"a":-3,"b":true}'),
    (TWO, '{"b":true}'),
    (TWO, '{"a": 3, "b": true}'),
    (TWO, "{}"),
    ({**TWO, "required": ["b"]}, '{"a":3,"b":true}'),
    ({**TWO, "required": ["z"]}, '{"z":1}'),
    (MORE, '{"abc":null,"x":true,"abcd":false}'),
    (MORE, '{"ab":true}'),
    (SMALL, "-5"),
    (SMALL, "0"),
    (SMALL, "123"),
    ({"type": "integer", "exclusiveMinimum": 1.5}, "2"),
    ({"type": "integer", "minimum": -(10**30)}, "-7"),
    ({"type": "integer", "minimum": -(10**400)}, "-7"),
    ({"type": "number"}, "-1.5e10"),
    ({"type": "number", "minimum": 0.5, "exclusiveMaximum": 2}, "1.75"),
    ({"const": 'a\\b"\n'}, json.dumps('a\\b"\n')),
    ({"enum": [1, None, "x", {"a": [1]}]}, '{"a":[1]}'),
    (SHORT, "[null]"),
    (SHORT, "[null,null, null]"),
    (PAIR, "[null,true]"),
    ({**NODE, "$ref": "#/$defs/node"}, '{"next":{"next":{}}}'),
    ({"properties": {"a/b~c": {"type": "null"}, "d": {"$ref": "#/properties/a~1b~0c"}}}, '{"d":null}'),
    (KINDS, '{"y":null}'),
    (EITHER, '{"b":true}'),
    (DERIVED, '{"id":null,"a":null}'),
    (BESIDE, '{"id":null,"a":null}'),
    ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "null"),
    ({"type": ["string", "null"]}, "null"),
    ({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, '{"a":1,"b":2}'),
    ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "2"),
    ({"allOf": [{"type": "string"}], "description": "a name"}, '"x"'),
    ({"type": "string", "minLength": 2, "maxLength": 3}, '"äö"'),
    ({"type": "string", "format": "date"}, '"2024-02-29"'),
    ({"type": "string", "format": "uuid"}, '"123e4567-e89b-12d3-a456-426614174000"'),
    ({"type": "string", "format": "no such format"}, '"anything"'),
    ({"type": "string", "not": {"const": "a"}}, '"not is let pass"'),
]

REFUSED = [  # what would be invalid is left to `test_every_document_that_can_be_written_is_valid`
    *((each, str(MAX + 1)) for each in INTEGERS),
    *((each, "39") for each in LARGE),
    (TOO_LARGE_TO_BE_EXACT, str(1 << 65)),
    *(({"type": "string", "minLength": n}, '""') for n in COUNTS),
    *(({"type": "string", "maxLength": n}, '"ab"') for n in COUNTS),
    (ITEMS, "[null,null]"),
    *((DECIMAL, text) for text in ('"-."', '"1.2.3"')),
    (EITHER_DECIMAL, '"1.5"'),
    (JSON_OBJECT, "[]"),
    (TWO, '{"c":1}'),
    ({"properties": {"a": {}}}, "3"),
    (SMALL, "007"),
    (KINDS, '{"x":null,"y":null}'),
    (EITHER, '{"a":1,"c":2}'),
    (DERIVED, '{"a":null}'),
    (DERIVED, '{"id":null,"b":null}'),
    ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "1"),
    ({"type": "string"}, '"a\nb"'),
    ({"type": "object"}, '{"a":1 }'),
]

WRONG = [
    (3, "a schema must be an object"),
    ({"items": 3}, "#/items: a schema must be an object"),
    ({"type": []}, "anyOf is empty"),
    ({"type": "text"}, "Invalid type: text"),
    ({"$ref": "#/nowhere"}, "cannot resolve"),
    ({"$ref": "https://example.org/schema"}, "within this schema"),
    ({"allOf": [{"$ref": "#"}, {}]}, "nothing may come next"),
    ({"enum": []}, "#/enum must be a non-empty list"),
    ({"anyOf": 3}, "anyOf must be a non-empty list"),
    ({"properties": {"a": {"properties": []}}}, "#/properties/a/properties must be an object"),
    ({"type": "integer", "minimum": "3"}, "minimum"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "maximum"),
    ({"items": {}, "minItems": -1}, "minItems"),
    ({"pattern": "("}, "unclosed group"),
    ({"const": float("inf")}, "not a JSON value"),
    ({"const": "\ud800"}, "not a JSON value"),
]


@pytest.mark.parametrize(("schema", "text"), ACCEPTED)
def test_what_a_schema_allows_can_be_written(accepts, schema, text):
    assert accepts(grammar_of(schema), text)


@pytest.mark.parametrize(("schema", "text"), REFUSED)
def test_what_a_schema_does_not_allow_cannot_be_written(accepts, schema, text):
    assert not accepts(grammar_of(schema), text)


@pytest.mark.parametrize(("schema", "message"), WRONG)
def test_a_wrong_schema_is_refused_with_what_is_wrong(vocabulary, schema, message):
    with pytest.raises(RequestError, match=r"^response_format: ") as caught:
        check_grammar(grammar_of(schema), vocabulary, "response_format")
    assert message in str(caught.value)
    assert caught.value.param == "response_format"


def test_the_error_names_the_field_that_the_schema_came_in():
    with pytest.raises(RequestError) as caught:
        check_schema(3, RequestLimits(), "json_schema")
    assert caught.value.param == "json_schema"


def test_the_schema_of_the_request_is_not_changed():
    schema = json.loads(json.dumps(EITHER))
    check_schema(schema, RequestLimits())
    assert schema == EITHER


def nested(n, inner):
    return functools.reduce(lambda schema, _: {"items": schema}, range(n), inner)


def test_the_depth_of_a_schema_is_bounded():
    check_schema(nested(40, {"type": "null"}), RequestLimits(max_schema_depth=41))
    with pytest.raises(RequestError, match="nested more than 20 levels"):
        check_schema(nested(40, {"type": "null"}), RequestLimits(max_schema_depth=20))


def chain(n, last=None):
    definitions = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(n)}
    return {"$defs": {**definitions, f"d{n}": last or {"type": "null"}}, "$ref": "#/$defs/d0"}


def test_chains_of_references_are_bounded(vocabulary):
    """llguidance follows references by recursion, and a stack overflow ends the process."""
    check_grammar(grammar_of(chain(90)), vocabulary, "response_format")
    check_grammar(grammar_of(chain(90, {"type": "number"})), vocabulary, "response_format")
    with pytest.raises(RequestError, match="the maximum is 300"):
        grammar_of(chain(1000))


DEFINITIONS = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(99)}
OF_ONE_VALUE = {
    "$defs": {**DEFINITIONS, "d99": {"type": "object"}},
    "properties": {f"p{i}": {"allOf": [{"$ref": "#/$defs/d0"}]} for i in range(1000)},
}
OF_OTHERS = {
    "$defs": {"named": {"properties": {f"x{i}": True for i in range(900)}}},
    "properties": {f"p{i}": {"allOf": [{"$ref": "#/$defs/named"}, {}]} for i in range(100)},
}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"pattern": "a?" * 250}, "500 characters; at most 400"),
        ({"enum": ["x" * 9000]}, "9002 bytes; at most 8192"),
        ({"allOf": [{"pattern": f".*a.{{{i}}}b"} for i in range(9)]}, "more than 8 patterns"),
        ({"allOf": [{"anyOf": [{"pattern": f"a{i}"}]} for i in range(9)]}, "more than 8 patterns"),
        ({"allOf": [{}] * 1001}, "more than 1000 schemas"),
        ({"enum": list(range(100_000))}, "at most 262144 are accepted"),
        ({"prefixItems": [{}] * 20_001}, "more than 20000 schemas"),
        (OF_ONE_VALUE, "too many references"),
        (OF_OTHERS, "too many properties"),
    ],
)
def test_what_multiplies_or_is_very_much_is_bounded(schema, message):
    with pytest.raises(RequestError, match=message):
        check_schema(schema, RequestLimits())


def write(matcher, vocabulary, rng):
    """A random document: of any allowed tokens while it is short, then of tokens that soon end it."""
    tokens = []
    for _ in range(200):
        is_long = len(tokens) > 20
        allowed = matcher.allowed()
        others = allowed[~np.isin(allowed, list(vocabulary.end_tokens))]
        if len(others) < len(allowed) and (is_long or not len(others) or rng.random() < 0.5):
            return vocabulary.detokenize(tokens)
        if is_long:
            closing = [token for token in others[:100].tolist() if vocabulary.piece(token)[:1] in b'}]"']
            others = closing or others[:20].tolist()
        tokens.append(int(rng.choice(others)))
        assert matcher.accept(tokens[-1])
    return None


@pytest.mark.parametrize("seed", [*range(5), *map(more, range(5, 10))])
def test_every_document_that_can_be_written_is_valid(vocabulary, seed):
    """The jsonschema package judges documents of 55 random schemas for each seed."""
    rng, maker, n_written = random.Random(seed), SchemaMaker(seed), 0
    for _ in range(55):
        schema = maker.schema()
        try:
            matcher = GrammarMatcher(grammar_of(schema), vocabulary)
        except ValueError as error:
            assert "nsatisfiable" in str(error), (schema, error)  # noqa: PT017 - others are bugs
            continue
        for _ in range(2):
            text = write(matcher.copy(), vocabulary, rng)
            if text is not None:
                n_written += 1
                jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)
    assert n_written > 55


def refusal(schema):
    with pytest.raises(RequestError) as caught:
        check_schema(schema, RequestLimits(), "response_format")
    return str(caught.value)


def test_a_type_that_is_named_twice_is_compiled_once():
    assert check_schema({"type": ["string", "string", "null"]}, RequestLimits())["type"] == ["string", "null"]


@pytest.mark.parametrize(
    "bound",
    [
        {"minimum": 10**17},
        {"exclusiveMinimum": MAX},
        {"maximum": -(10**17)},
        {"exclusiveMaximum": -1e300},
        {"maximum": float("-inf")},
    ],
)
def test_bounds_that_leave_only_numbers_that_are_too_large_are_refused(bound):
    assert "9007199254740991 (53 bits)" in refusal({"type": ["integer", "null"], **bound})


def test_a_refusal_does_not_quote_the_text_that_llguidance_reads(vocabulary):
    with pytest.raises(RequestError) as caught:
        check_grammar(grammar_of({"pattern": "("}), vocabulary, "response_format")
    assert "unclosed group" in str(caught.value)
    assert "%" not in str(caught.value)


ANNOTATED = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Arguments",
    "description": "A long text. " * 100,
    "properties": {
        "description": {"type": "null", "description": "A property of this name.", "examples": [None]},
        "title": {"$ref": "#/$defs/text", "default": "x", "deprecated": True, "x-order": 3},
    },
    "$defs": {
        "text": {"type": "string", "title": "Text"},
        "unused": {"$ref": "https://example.org/never/followed"},
    },
}


def test_annotations_and_what_nothing_refers_to_are_left_out():
    assert check_schema(ANNOTATED, RequestLimits()) == {
        "$defs": {"text": {"type": "string"}},
        "type": "object",
        "properties": {"description": {"type": "null"}, "title": {"$ref": "#/$defs/text"}},
        "additionalProperties": False,
    }


def test_annotations_do_not_count():
    described = {"type": "null", "description": "x" * 3000}
    schema = {"properties": {f"p{i}": described for i in range(100)}}
    check_schema(schema, RequestLimits(max_grammar_bytes=4000))


def test_the_only_schema_of_an_all_of_stands_for_it():
    schema = {"$defs": {"a": TWO}, "allOf": [{"$ref": "#/$defs/a"}], "description": "As in pydantic 1"}
    assert check_schema(schema, RequestLimits())["$ref"] == "#/$defs/a"


A = {"properties": {"a": {"type": "null"}}}
B = {"properties": {"b": {"type": "null"}}}
CLOSED = {"type": "object", "unevaluatedProperties": False}


@pytest.mark.parametrize(
    ("schema", "allowed"),
    [
        ({**A, **CLOSED}, "a"),
        (CLOSED, ""),
        ({"allOf": [A, B], **CLOSED}, "ab"),
        ({"$defs": {"a": A}, "$ref": "#/$defs/a", **B, **CLOSED}, "ab"),
        ({"anyOf": [A, {"type": "object"}], **CLOSED}, "a"),
        ({"allOf": [{**A, **CLOSED}, B]}, "a"),
        ({"patternProperties": {"^b$": {"type": "null"}}, **CLOSED}, "b"),
        ({**A, "unevaluatedProperties": {"type": "null"}}, "abc"),
        ({**A, "unevaluatedProperties": True}, "abc"),
    ],
)
def test_unevaluated_properties_are_those_that_no_schema_of_the_value_names(accepts, schema, allowed):
    grammar = grammar_of(schema)
    assert [name for name in "abc" if accepts(grammar, f'{{"{name}":null}}')] == list(allowed)


OTHERS = {"patternProperties": {"^x": {"type": "null"}}}


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"allOf": [OTHERS], **A, "unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"anyOf": [A, B], "unevaluatedProperties": {"type": "null"}}, "unevaluatedProperties"),
        ({"allOf": [{"prefixItems": [{}]}, {}], "unevaluatedItems": False}, "unevaluatedItems"),
        ({**A, "propertyNames": {"minLength": 2}}, "propertyNames"),
        ({"$dynamicRef": "#node"}, r"\$dynamicRef"),
        ({"pattern": r"\bword\b"}, "pattern"),
        ({"anyOf": [{"pattern": r"\bword\b"}]}, "pattern"),
        ({"multipleOf": 86_400}, "multipleOf"),
    ],
)
def test_what_a_grammar_cannot_follow_is_refused_by_name(schema, keyword):
    with pytest.raises(RequestError, match=f"^response_format: #.*/{keyword}"):
        check_schema(schema, RequestLimits())


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"x": {"$anchor": "item", "type": "null"}}, "items": {"$ref": "#item"}},
        {"definitions": {"x": {"$id": "#item", "type": "null"}}, "items": {"$ref": "#item"}},
        {
            "$id": "https://example.org/a.json",
            "$defs": {"x": {"type": "null"}},
            "items": {"$ref": "a.json#/$defs/x"},
        },
        {"$id": "urn:a:b", "$defs": {"x": {"type": "null"}}, "items": {"$ref": "urn:a:b#/$defs/x"}},
        {"$defs": {"a/b c": {"type": "null"}}, "items": {"$ref": "#/$defs/a~1b%20c"}},
    ],
)
def test_references_are_followed_by_anchor_address_and_escaped_pointer(accepts, schema):
    grammar = grammar_of(schema)
    assert accepts(grammar, "[null]")
    assert not accepts(grammar, "[1]")


def test_references_beside_schemas_with_an_address_of_their_own_are_refused():
    inner = {"$id": "other.json", "properties": {"a": {"$ref": "#/$defs/x"}}}
    assert "#/items/$id" in refusal({"$defs": {"x": {"type": "null"}}, "items": inner})


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"]
    weight: float


class Tree(BaseModel):
    value: float
    children: Annotated[list["Tree"], Field(max_length=2)] = []


PYDANTIC = [
    Annotated[Decimal, Field(gt=0, lt=10)],
    UUID,
    date,
    Annotated[int, Field(ge=1, le=10, multiple_of=2)],
    Annotated[str, Field(min_length=1, max_length=5, pattern="^[a-z]+$")],
    Literal["a", 1, True] | None,
    float | None,
    int | str | list[float],
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Tree,
    Color,
    dict[Color, int],
    dict[Literal["x", "y"], float],
    dict[Annotated[str, Field(pattern="^[a-z]{1,3}$")], float],
    dict[UUID, int],
    tuple[float, float],
    set[Color],
    IPv4Address,
]


@pytest.mark.parametrize("kind", PYDANTIC, ids=str)
def test_types_of_pydantic_are_followed(vocabulary, kind):
    rng, adapter = random.Random(2), TypeAdapter(kind)
    matcher = GrammarMatcher(grammar_of(adapter.json_schema()), vocabulary)
    for _ in range(4):
        text = write(matcher.copy(), vocabulary, rng)
        if text is not None:
            jsonschema.validate(json.loads(text), adapter.json_schema())
