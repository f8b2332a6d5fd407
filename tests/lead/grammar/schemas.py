"""JSON schemas and their grammars, for tests."""

import random
from typing import Any

from lead.grammar.json_rules import json_grammar
from lead.grammar.json_schema import check_schema
from lead.settings.limits import RequestLimits
from shared.llama.vocabulary import Vocabulary
from shared.sampling.grammar import GrammarMatcher

Schema = dict[str, Any]


def grammar_of(schema: object, limits: RequestLimits | None = None) -> str:
    return json_grammar(check_schema(schema, limits or RequestLimits()))


def random_document(
    matcher: GrammarMatcher, vocabulary: Vocabulary, rng: random.Random, max_tokens: int = 2000
) -> str:
    """A document of random tokens that ends within `max_tokens`."""
    tokens: list[int] = []
    for _ in range(max_tokens):
        allowed = matcher.allowed().tolist()
        others = [token for token in allowed if token not in vocabulary.end_tokens]
        if len(others) < len(allowed) and (not others or rng.random() < 0.5):
            return vocabulary.detokenize(tokens)
        tokens.append(rng.choice(others))
        assert matcher.accept(tokens[-1])
    raise AssertionError(f"no end: {vocabulary.detokenize(tokens)[-100:]}")


class SchemaMaker:
    """Random schemas that use everything that grammars guarantee."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def schema(self) -> Schema:
        """A schema with definitions, one of which refers to itself."""
        return {
            "$defs": {
                "leaf": self._value(0),
                "short": {"type": "string", "maxLength": 2},
                "node": self._object(1, more={"next": {"$ref": "#/$defs/node"}}),
            },
            **self._value(3),
        }

    def _value(self, depth: int) -> Schema:
        makers = [self._integer, self._number, self._string, self._constant, self._simple]
        if depth:
            deeper = [
                self._object,
                self._map,
                self._array,
                self._tuple,
                self._alternatives,
                self._merged,
                self._reference,
            ]
            return self._rng.choice([*makers[:4], *deeper * 2])(depth)
        return self._rng.choice(makers)(depth)

    def _simple(self, _depth: int) -> Schema:
        return {"type": self._rng.choice(["boolean", "null", ["null", "boolean"], ["integer", "string"]])}

    def _integer(self, _depth: int) -> Schema:
        schema: Schema = {"type": "integer"}
        if self._rng.random() < 0.7:
            schema[self._rng.choice(["minimum", "exclusiveMinimum"])] = self._rng.randint(-200, 0)
        if self._rng.random() < 0.7:
            schema[self._rng.choice(["maximum", "exclusiveMaximum"])] = self._rng.randint(10, 5000)
        if self._rng.random() < 0.3:
            schema |= {"minimum": 3, "exclusiveMinimum": self._rng.choice([1, 5, 2.5])}
        return schema

    def _number(self, _depth: int) -> Schema:
        if self._rng.random() < 0.3:
            return {"type": self._rng.choice(["number", ["number", "null"]])}
        if self._rng.random() < 0.2:
            return {"type": "number", "multipleOf": self._rng.choice([0.25, 3])}
        low, high = sorted(round(self._rng.uniform(-99, 99), 2) for _ in range(2))
        return {"type": "number", "minimum": low, self._rng.choice(["maximum", "exclusiveMaximum"]): high + 1}

    def _string(self, _depth: int) -> Schema:
        if self._rng.random() < 0.4:
            pattern = self._rng.choice(["^[a-c]{2,4}$", "^x", "[0-9]$", "^(foo|ba[rz])+-?$", "a.b"])
            return {"type": "string", "pattern": pattern, "maxLength": 20}
        if self._rng.random() < 0.2:
            return {"type": "string", "format": self._rng.choice(["date", "ipv4", "uuid"])}
        minimum = self._rng.randint(0, 4)
        return {"type": "string", "minLength": minimum, "maxLength": minimum + self._rng.randint(0, 9)}

    def _constant(self, _depth: int) -> Schema:
        values = [1, -2.5, 'é"\\', None, True, {"a": [1, {}]}, [], "long text, with punctuation"]
        if self._rng.random() < 0.3:
            return {"const": self._rng.choice(values)}
        return {"enum": self._rng.sample(values, self._rng.randint(1, 5))}

    def _object(self, depth: int, more: Schema | None = None) -> Schema:
        names = self._rng.sample(["a", "b", "ab", "é", "a/b~", 'q"'], self._rng.randint(1, 4))
        properties = {name: self._value(depth - 1) for name in names}
        schema: Schema = {"type": "object", "properties": properties | (more or {})}
        if self._rng.random() < 0.7:
            schema["required"] = self._rng.sample(names, self._rng.randint(1, len(names)))
        if self._rng.random() < 0.3:
            schema["additionalProperties"] = self._rng.choice([False, {"type": "integer"}])
        if self._rng.random() < 0.3:
            schema["anyOf"] = [{"required": [name]} for name in names]
        if self._rng.random() < 0.2:
            schema["unevaluatedProperties"] = self._rng.choice([False, {"type": "null"}])
            schema.pop("anyOf", None)
        return schema

    def _map(self, depth: int) -> Schema:
        names = [
            {"enum": ["a", "b", "cd"]},
            {"pattern": "^[a-d]{1,3}$"},
            {"minLength": 1.0, "maxLength": 3},
            {"$ref": "#/$defs/short"},
        ]
        schema = {"type": "object", "propertyNames": self._rng.choice(names)}
        return {**schema, "additionalProperties": self._value(depth - 1)}

    def _tuple(self, depth: int) -> Schema:
        items = [self._value(depth - 1) for _ in range(self._rng.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def _array(self, depth: int) -> Schema:
        minimum = self._rng.randint(0, 2)
        schema: Schema = {"type": "array", "minItems": minimum, "maxItems": minimum + self._rng.randint(0, 3)}
        if self._rng.random() < 0.4:
            schema["prefixItems"] = [self._value(depth - 1) for _ in range(self._rng.randint(1, 2))]
        schema["items"] = self._value(depth - 1)
        return schema

    def _alternatives(self, depth: int) -> Schema:
        return {"anyOf": [self._value(depth - 1) for _ in range(self._rng.randint(1, 3))]}

    def _merged(self, depth: int) -> Schema:
        """An object that is described in several places."""
        beside = self._rng.choice(["allOf", "anyOf", "$ref"])
        schema = self._object(depth)
        schema.pop("anyOf", None)
        schema.pop("additionalProperties", None)
        schema.pop("unevaluatedProperties", None)
        other = {"properties": {"z": self._value(depth - 1)}, "required": ["z"]}
        if beside == "$ref":
            return (
                {**schema, "$ref": "#/$defs/node"} if self._rng.random() < 0.5 else {"$ref": "#/$defs/leaf"}
            )
        more = self._rng.choice([{}, {"unevaluatedProperties": False}])
        return {**schema, beside: [other], **more}

    def _reference(self, _depth: int) -> Schema:
        return {"$ref": self._rng.choice(["#/$defs/leaf", "#/$defs/node"])}
