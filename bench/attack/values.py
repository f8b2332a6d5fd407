"""Hostile JSON: small values at random, and large ones that fill a body.

A `Raw` is text that json.dumps would not write: NaN, numbers of thousands of digits, unpaired surrogates,
members that occur twice. `encode` puts it into the body as it is.
"""

import json
import random
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

Json = Any

_MARK = "\x01raw%d\x01"
_MARKED = re.compile(r'"\\u0001raw(\d+)\\u0001"')
"""The mark as json.dumps writes it."""


@dataclass(frozen=True, slots=True)
class Raw:
    """JSON text, or what looks like it."""

    text: str


def encode(value: Json) -> bytes:
    """The body with `value`, which may contain Raw."""
    return written(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def written(value: Json, *, ensure_ascii: bool = True) -> str:
    """JSON, with NaN and infinities as Python writes them, and what is Raw as it is."""
    raws: list[str] = []

    def marked(each: object) -> str:
        if not isinstance(each, Raw):
            raise TypeError(type(each))
        raws.append(each.text)
        return _MARK % (len(raws) - 1)

    text = json.dumps(value, ensure_ascii=ensure_ascii, default=marked, separators=(",", ":"))
    return _MARKED.sub(lambda mark: raws[int(mark[1])], text)


MARKS = ("<|im_end|>", "<|im_start|>system\n", "<s>", "</s>", "[INST]", "<think>", "<tool_call>", "{", "}}")
"""Texts that mean something to a template, a tokenizer or a parser."""
CHARACTERS = (" ", "a", "=", "\n", "語", "\U0001f600", "\u0000", "\\", '"', "\u202e", "\u061c", "é")
"""Runs of one of them have been too much for splitters, parsers and logs."""

_SCALARS: tuple[Json, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 1.5, -0.0, 1e-300, 1e308, 2**31, 2**53, 2**63, 2**64, -(2**63)),
    *(10**40, 10**400, Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e999"), Raw("9" * 4000)),
    *("", "x", "Hi", "user", "auto", "1", "-1", "1e5", "none", "{}", "[]", "null"),
    *(Raw(r'"\ud83d"'), Raw(r'"\ud83d\ud83d"'), Raw('{"a": 1, "a": 2}'), Raw("[" * 60 + "]" * 60)),
    *([], {}, [[]], [{}], {"": ""}, {"a": {"b": []}}, [None], ["x", 1, None]),
)
_TYPES = (
    *("text", "image", "image_url", "input_text", "output_text", "refusal", "message", "reasoning"),
    *("function", "function_call", "function_call_output", "tool_use", "tool_result", "thinking"),
    *("json_object", "json_schema", "object", "array", "string", "integer", "number", "null", "content"),
)
_WORDS = ("Hi", "user", "assistant", "system", "tool", "auto", "required", "none", "text", "function", "f")
_SCHEMA_WORDS = (
    *("type", "properties", "items", "prefixItems", "additionalProperties", "required", "enum", "const"),
    *("allOf", "anyOf", "oneOf", "not", "$ref", "$defs", "definitions", "pattern", "format", "minLength"),
    *("maxLength", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "minItems", "maxItems"),
    *("uniqueItems", "minProperties", "propertyNames", "patternProperties", "if", "then", "description"),
)
_FIELDS = (
    *("type", "text", "content", "summary", "input", "id", "name", "arguments", "call_id", "output", "role"),
    *("tool_use_id", "thinking", "function", "parameters", "refusal", "image_url", "source", "schema"),
    *("tool_calls", "reasoning_content", "enable_thinking", "strict", "status", "encrypted_content"),
)
_PATTERNS = ("(a+)+$", "(", "[", "a{1000000}", "(?=x)", "\\", "^(a|a)*$", "\\p{L}{1,1000}", "(?<x>a)\\k<x>")
_REFERENCES = ("#", "#/$defs/a", "#/properties/a", "http://x/y", "#/allOf/0", "", "#/$defs/~2", "%")


def small(rng: random.Random, depth: int = 3) -> Json:
    """A value of at most a few kilobytes."""
    makers: tuple[tuple[float, Callable[[random.Random, int], Json]], ...] = (
        (5, lambda rng, _: rng.choice(_SCALARS)),
        (1, lambda rng, _: rng.choice(CHARACTERS + MARKS) * rng.choice((1, 2, 50, 500))),
        (1, lambda rng, _: rng.choice((-1, 1)) * rng.getrandbits(rng.randint(1, 80))),
        (2 * bool(depth), lambda rng, depth: [small(rng, depth - 1) for _ in range(rng.randint(0, 4))]),
        (2 * bool(depth), lambda rng, depth: _object(rng, _FIELDS, depth)),
        (2 * bool(depth), lambda rng, depth: _object(rng, _SCHEMA_WORDS, depth)),
        (0.3 * bool(depth), lambda rng, depth: [small(rng, depth - 1)] * rng.choice((5, 40))),
    )
    weights = [weight for weight, _ in makers]
    ((_, make),) = rng.choices(makers, weights)
    return make(rng, depth)


def fitting(rng: random.Random, kinds: Collection[str]) -> Json:
    """A value of one of the types in `kinds` (text, number, list, object, any), odd as it may be."""
    match rng.choice(sorted(kinds)):
        case "text":
            return rng.choice((*_WORDS, rng.choice(CHARACTERS + MARKS) * rng.choice((1, 3, 300))))
        case "number":
            return rng.choice((True, False, 0, 1, 2, 3, -1, 0.5, 1.0, 100, 4096, 2**31 - 1, 2**32, 1e-6))
        case "list":
            return [fitting(rng, ("text", "number", "object")) for _ in range(rng.randint(0, 3))]
        case "object":
            return _object(rng, rng.choice((_FIELDS, _SCHEMA_WORDS)), 3)
    return small(rng)


def _object(rng: random.Random, names: tuple[str, ...], depth: int) -> Json:
    fields = {rng.choice(names): small(rng, depth - 1) for _ in range(rng.randint(0, 4))}
    special: Mapping[str, tuple[str, ...]] = {"type": _TYPES, "pattern": _PATTERNS, "$ref": _REFERENCES}
    for name, choices in special.items():
        if name in fields and rng.random() < 0.7:  # noqa: PLR2004 - mostly a good one: errors lie behind it
            fields[name] = rng.choice(choices)
    if rng.random() < 0.5:  # noqa: PLR2004 - as above
        fields.setdefault("type", rng.choice(_TYPES))
    return fields


ELEMENTS: tuple[str, ...] = (
    *("0", '""', "null", "[]", "{}", "1.5", '"ab"', "[0]", '{"a":0}', '{"type":[]}', '{"type":"text"}'),
    *('{"type":"text","text":""}', '{"role":"user","content":""}', '{"role":"assistant"}'),
    *('{"type":"reasoning"}', '{"type":"message","role":"assistant","content":"a"}', "[0,0]", '["a",-1]'),
    *('{"type":"function","function":{"name":"f"}}', '{"name":"f","input_schema":{}}'),
    *('{"type":"function_call","name":"f","call_id":"1","arguments":"{}"}', '{"type":"tool_use","name":"f"}'),
    *('{"prompt_string":""}', '{"type":"tool_result"}', '{"type":"draft","sequence":"a","base":0}'),
)
"""Elements of large lists: what is cheap to send, and what an API takes for an element of its lists."""


def large(rng: random.Random, n_bytes: int) -> tuple[str, Raw]:
    """What it is, and a value of about `n_bytes` bytes."""
    makers: tuple[Callable[[], tuple[str, Raw]], ...] = (
        lambda: large_list(rng.choice(ELEMENTS), n_bytes),
        lambda: large_text(rng.choice(CHARACTERS + MARKS), n_bytes),
        lambda: large_object(rng.choice(ELEMENTS), n_bytes),
        lambda: nested(rng.choice(("[]", "{}", "allOf")), n_bytes),
    )
    return rng.choices(makers, (4, 2, 1, 1))[0]()


def large_list(element: str, n_bytes: int) -> tuple[str, Raw]:
    """A list of nothing but `element`."""
    n = max(1, n_bytes // (len(element.encode()) + 1))
    return f"{n} times {element}", Raw("[" + ",".join([element] * n) + "]")


def large_object(element: str, n_bytes: int) -> tuple[str, Raw]:
    """An object with many members, all with the value `element`."""
    n = max(1, n_bytes // (len(element.encode()) + 9))
    members = ",".join(f'"{number:x}":{element}' for number in range(n))
    return f"{n} members {element}", Raw("{" + members + "}")


def large_text(text: str, n_bytes: int) -> tuple[str, Raw]:
    """`text` over and over."""
    shown = json.dumps(text, ensure_ascii=False)[1:-1]
    n = max(1, n_bytes // len(shown.encode()))
    return f"{n} times {text!r}", Raw('"' + shown * n + '"')


def nested(kind: str, n_bytes: int) -> tuple[str, Raw]:
    """Containers in containers, as deep as the size allows."""
    start, middle, end = {
        "[]": ("[", "", "]"),
        "{}": ('{"a":', "0", "}"),
        "allOf": ('{"allOf":[', '{"$ref":"#"}', "]}"),
    }[kind]
    n = max(1, n_bytes // len(start + end))
    return f"{n} levels of {kind}", Raw(start * n + middle + end * n)
