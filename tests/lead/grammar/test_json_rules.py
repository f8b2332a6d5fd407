import json
import math
import random

import pytest

from lead.grammar.json_rules import JsonRules, json_grammar
from lead.grammar.json_schema import JSON_OBJECT, check_schema
from lead.grammar.lark import check_grammar, lark_grammar
from lead.settings.limits import RequestLimits
from shared.sampling.grammar import GrammarMatcher
from tests.lead.grammar.schemas import grammar_of, random_document

NUMBER = {"type": "number"}
POINT = {"type": "array", "prefixItems": [NUMBER, NUMBER], "minItems": 2, "maxItems": 2}
TREE = {
    "$defs": {
        "tree": {"properties": {"v": NUMBER, "in": {"items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}}
    },
    "$ref": "#/$defs/tree",
}
MANY_DIGITS = f"3.{'1' * 17}"

PLACES = [
    (NUMBER, "{}"),
    ({"type": ["null", "number"]}, "{}"),
    ({"type": "number", "minimum": 0, "exclusiveMaximum": 4.5}, "{}"),
    ({"type": "object", "properties": {"a": NUMBER}}, '{{"a":{}}}'),
    ({"type": "object", "additionalProperties": NUMBER}, '{{"any":{}}}'),
    ({"type": "object", "properties": {"a": NUMBER}, "additionalProperties": True}, '{{"b":{}}}'),
    ({"type": "array", "items": NUMBER}, "[1,{}]"),
    (POINT, "[1, {}]"),
    ({"anyOf": [{"type": "null"}, {"properties": {"a": NUMBER}}]}, '{{"a": {}}}'),
    (TREE, '{{"v":1,"in":[{{"v":{}}}]}}'),
    ({}, '[{{"a":{}}}]'),
    (JSON_OBJECT, '{{"a":[{}]}}'),
    ({"allOf": [{"properties": {"a": NUMBER}}, {"properties": {"b": NUMBER}}]}, '{{"a":{}}}'),
]


@pytest.mark.parametrize(("schema", "text"), PLACES)
def test_the_digits_of_numbers_are_bounded_wherever_they_are(accepts, schema, text):
    grammar = grammar_of(schema)
    assert accepts(grammar, text.format(3.25))
    assert not accepts(grammar, text.format(MANY_DIGITS))


@pytest.mark.parametrize("multiple", [5, 0.25])
def test_multiples_are_bounded_too(accepts, multiple):
    grammar = grammar_of({"type": "number", "multipleOf": multiple})
    assert accepts(grammar, "-15")
    assert not accepts(grammar, "5" * 18)


BOUNDED = [
    schema for schema, _ in PLACES if schema not in ({}, JSON_OBJECT) and "additionalProperties" not in schema
]


@pytest.mark.parametrize("schema", BOUNDED)
def test_what_is_sampled_at_random_ends(vocabulary, schema):
    rng, matcher = random.Random(1), GrammarMatcher(grammar_of(schema), vocabulary)
    texts = [random_document(matcher.copy(), vocabulary, rng) for _ in range(5)]
    assert all(math.isfinite(number) for text in texts for number in numbers_in(json.loads(text)))


def numbers_in(value):
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [number for each in inner for number in numbers_in(each)]
    return [value] if isinstance(value, int | float) else []


def test_properties_keep_their_order_and_may_be_missing(accepts):
    properties = {"a": NUMBER, "b": NUMBER, "c": NUMBER}
    grammar = grammar_of({"properties": properties, "required": ["b"]})
    assert all(accepts(grammar, text) for text in ('{"b":1}', '{"a":1,"b":1}', '{"b":1, "c":2}'))
    assert not any(accepts(grammar, text) for text in ("{}", '{"a":1}', '{"b":1,"a":1}', '{"b":1,}'))


def test_further_properties_have_other_names(accepts):
    grammar = grammar_of({"properties": {"a": {"type": "null"}}, "additionalProperties": NUMBER})
    assert accepts(grammar, '{"a":null,"b":1,"c":2}')
    assert not accepts(grammar, '{"a":1}')


@pytest.mark.parametrize(("minimum", "maximum"), [(0, None), (0, 0), (0, 1), (1, None), (1, 1), (2, 3)])
def test_a_list_has_as_many_items_as_it_may(accepts, minimum, maximum):
    bounds = {"minItems": minimum} | ({} if maximum is None else {"maxItems": maximum})
    grammar = grammar_of({"type": "array", "items": NUMBER, **bounds})
    for n in range(5):
        fits = minimum <= n and (maximum is None or n <= maximum)
        assert accepts(grammar, f"[{','.join(['1'] * n)}]") == fits


def test_tools_of_the_same_kind_share_rules():
    rules = []
    writer = JsonRules(rules)
    assert writer.of({"type": "array", "items": NUMBER}) == writer.of({"type": "array", "items": NUMBER})


def test_definitions_of_two_schemas_are_not_mixed_up(accepts):
    rules = []
    writer = JsonRules(rules)
    names = [
        writer.of({"$defs": {"x": {"type": "array", "items": item}}, "$ref": "#/$defs/x"})
        for item in (NUMBER, {"type": ["number", "null"]})
    ]
    grammar = lark_grammar([f"start: {names[0]} {names[1]}", *rules])
    assert accepts(grammar, "[1][null]")
    assert not accepts(grammar, "[null][1]")


def test_very_many_properties_that_may_be_missing_are_left_to_llguidance():
    """As rules, each would refer to the next. llguidance follows them by recursion: its stack overflows."""
    grammar = json_grammar({"type": "object", "properties": {f"p{i}": NUMBER for i in range(3000)}})
    assert grammar.count("\n") < 10


def tool(i):
    """A tool as large as tools of the Model Context Protocol: 5 KB with its descriptions."""
    described = {"description": "What it is for, in a sentence or two, with examples. " * 6}
    texts = {f"text_{j}": {"type": "string", **described, "title": f"Text {j}"} for j in range(8)}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            **texts,
            f"limit_{i}": {"type": "integer", "minimum": 1, "maximum": 100 + i, "default": 10, **described},
            "ratio": {"type": "number", "minimum": 0, "maximum": 1, **described},
            "urls": {
                "type": "array",
                "items": {"type": "string", "format": "uri", "maxLength": 2048},
                "minItems": 1,
            },
            "mode": {"enum": ["fast", "slow", f"mode_{i}"], "examples": ["fast"] * 30, **described},
            "options": {"type": "object", "additionalProperties": {}, **described},
            "filter": {
                "anyOf": [{"type": "object", "properties": {"x": {"type": "number"}}}, {"type": "null"}]
            },
        },
        "required": ["text_0"],
        "additionalProperties": False,
    }


def test_sixty_tools_of_300_kb_fit_and_compile(vocabulary):
    tools = [tool(i) for i in range(60)]
    rules: list[str] = []
    writer = JsonRules(rules)
    assert len(json.dumps(tools)) > 300_000
    calls = [
        f'"{i} " {writer.of(check_schema(each, RequestLimits(), "tools"))}' for i, each in enumerate(tools)
    ]
    grammar = lark_grammar([f"start: {' | '.join(calls)}", *rules])
    assert len(grammar) < RequestLimits().max_grammar_bytes / 2
    check_grammar(grammar, vocabulary, "tools")
