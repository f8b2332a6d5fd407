import json
import random

import jsonschema
import pytest

from lead.chat_format.constraint import grammar_for
from lead.chat_format.deltas import AssistantMessage
from lead.chat_format.output_format import ParserConfig
from lead.chat_format.parser import OutputParser
from lead.chat_format.request import ConversationFields
from lead.grammar.json_schema import check_schema
from lead.settings.limits import RequestLimits
from lead.tools.argument_types import argument_types
from shared.sampling.grammar import GrammarMatcher
from tests.lead.chat_format.cases import formats

TAGGED = {name: own for name, own in formats().items() if own.arguments}
STRINGS = [
    {"type": "string", "maxLength": 8},
    {"enum": ["red", "blue sky", 'a"b']},
    {"const": "x"},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4},
    {"type": "string", "pattern": "^(?!-)[a-z-]{2,4}$"},
    {"$ref": "#/$defs/color"},
    {"anyOf": [{"$ref": "#/$defs/color"}, {"type": "null"}]},
]
DEFINITIONS = {"color": {"enum": ["red", "blue sky"]}}
OTHERS = [
    {"type": "integer", "minimum": 0, "maximum": 99},
    {"type": "number"},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "boolean"},
    {"type": ["integer", "null"], "minimum": 0, "maximum": 50},
    {"type": ["string", "null"], "maxLength": 4},
    {"enum": [1, 2, "three"]},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 3},
    {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 3}]},
]


def random_schema(rng):
    properties = {f"p{i}": rng.choice(STRINGS + OTHERS) for i in range(rng.randint(0, 4))}
    required = [name for name in properties if rng.random() < 0.5]
    form = {"type": "object", "additionalProperties": False, "$defs": DEFINITIONS}
    return {"properties": properties, "required": required, **form}


def grammar(vocabulary, calls, schemas, **fields):
    tools = [
        {"type": "function", "function": {"name": name, "parameters": each}} for name, each in schemas.items()
    ]
    asked = {"messages": [{"role": "user", "content": "Hi"}], "tool_choice": "required", "tools": tools}
    request = ConversationFields.model_validate(asked | fields)

    def check(schema, field):
        return check_schema(schema, RequestLimits(), field)

    return grammar_for(
        request, calls, None, in_reasoning=False, check=check, special_tokens=vocabulary.special_tokens
    )


def written_at_random(vocabulary, text, rng):
    """The text of a model that chooses random tokens under the grammar."""
    matcher, tokens = GrammarMatcher(text, vocabulary), []
    while len(tokens) < 2000:
        allowed = matcher.allowed()
        others = [int(token) for token in allowed if token not in vocabulary.end_tokens]
        if not others or (len(others) < len(allowed) and rng.random() < 0.5):
            return b"".join(vocabulary.piece(token, special=True) for token in tokens).decode(
                "utf-8", "replace"
            )
        tokens.append(rng.choice(others))
        assert matcher.accept(tokens[-1])
    raise AssertionError("it does not end")


def parsed(calls, schemas, text):
    types = {each: argument_types(schema) for each, schema in schemas.items()}
    parser = OutputParser(ParserConfig(tool_format=calls, tools=frozenset(types), types=types))
    return AssistantMessage.of([*parser.push(text), *parser.finish()])


@pytest.mark.parametrize("name", TAGGED)
def test_calls_that_are_written_at_random_fit_their_schemas(vocabulary, name):
    rng = random.Random(name)
    for _ in range(5):
        schemas = {f"tool_{i}": random_schema(rng) for i in range(2)}
        text = written_at_random(vocabulary, grammar(vocabulary, TAGGED[name], schemas), rng)
        message = parsed(TAGGED[name], schemas, text)
        assert message.calls
        assert message.content.strip() == ""
        for call in message.calls:
            jsonschema.validate(json.loads(call.arguments), schemas[call.name])


@pytest.mark.parametrize("name", TAGGED)
def test_a_tool_without_properties_may_have_any(vocabulary, accepts, name):
    text = grammar(vocabulary, TAGGED[name], {"add": {"type": "object"}})
    assert accepts(text, TAGGED[name].write([("add", {"anything": "text"})]))
    assert accepts(text, TAGGED[name].write([("add", {})]))


PATTERNS = [r"^[a-z]{2,3}$", r"^(?!-)[a-z-]{2,3}$", r"^(?=.*\d)[a-z0-9]{2,3}$"]


@pytest.mark.parametrize("name", TAGGED)
def test_strings_match_their_patterns(vocabulary, name):
    properties = {f"p{i}": {"type": "string", "pattern": pattern} for i, pattern in enumerate(PATTERNS)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    text = grammar(vocabulary, TAGGED[name], {"tool": schema}, parallel_tool_calls=False)
    rng = random.Random(3)
    for _ in range(3):
        [call] = parsed(TAGGED[name], {"tool": schema}, written_at_random(vocabulary, text, rng)).calls
        jsonschema.validate(json.loads(call.arguments), schema)
