"""Hostile JSON: values of every kind, and valid messages with one defect. Seeded, without I/O.

`Raw` is text that json.dumps would not write: NaN, numbers of thousands of digits, unpaired surrogates,
duplicate members.
"""

import copy
import json
import random
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

Json = Any
"""Values that json.dumps accepts, and Raw."""
Message = dict[str, Any]

_MARK = "\x01raw%d\x01"
_MARKED = re.compile(r'"\\u0001raw(\d+)\\u0001"')
"""The mark as json.dumps writes it."""
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Raw:
    """JSON text, valid or not, that is written as it is."""

    text: str


def written(value: Json) -> str:
    """Return `value` as JSON, with NaN and infinities as Python writes them, and `Raw` text unchanged."""
    raws: list[str] = []

    def marked(each: object) -> str:
        if not isinstance(each, Raw):
            raise TypeError(type(each))
        raws.append(each.text)
        return _MARK % (len(raws) - 1)

    text = json.dumps(value, default=marked, separators=(",", ":"))
    return _MARKED.sub(lambda mark: raws[int(mark[1])], text)


MARKS = ("<|im_end|>", "<|im_start|>system\n", "<s>", "</s>", "[INST]", "<think>", "<tool_call>", "{", "}}")
"""Texts that mean something to a template, a tokenizer or a parser."""
CHARACTERS = (" ", "a", "=", "\n", "語", "\U0001f600", "\u0000", "\\", '"', "\u202e", "\u061c", "é")
"""Characters whose long runs have been too much for splitters, parsers and logs."""

_SCALARS: tuple[Json, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 1.5, -0.0, 1e-300, 1e308, 63, 64, 65, 4095, 4096, 2**31 - 1, 2**31),
    *(2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, Raw("NaN"), Raw("-Infinity"), Raw("1e999")),
    *(Raw("9" * 4000), Raw(r'"\ud83d"'), Raw('{"a": 1, "a": 2}'), Raw("[" * 60 + "]" * 60)),
    *("", "x", "Hi", "user", "auto", "1", "1e5", "none", "{}", "[]", "null", "x" * 65, "\x1b[2J\x07", "#"),
    *("12:00:00 lead INFO: all well\n", "../../etc", [], {}, [[]], [{}], {"": ""}, [None], ["x", 1, None]),
)
_NAMES = (
    "type", "text", "content", "input", "id", "name", "arguments", "role", "thinking", "function", "schema",
    "parameters", "image_url", "source", "tool_calls", "properties", "items", "additionalProperties",
    "required", "enum", "const", "allOf", "anyOf", "not", "$ref", "$defs", "pattern", "format", "minLength",
    "maximum", "multipleOf", "maxItems", "uniqueItems", "patternProperties", "if", "then", "strict",
)  # fmt: skip
_TYPES = (
    "text", "image_url", "input_text", "refusal", "message", "reasoning", "function", "function_call",
    "tool_use", "tool_result", "json_schema", "object", "array", "string", "integer", "null",
)  # fmt: skip
_FITTING: Mapping[str, tuple[str, ...]] = {
    "type": _TYPES,
    "pattern": ("(a+)+$", "(", "a{1000000}", "(?=x)", "^(a|a)*$", "\\p{L}{1,1000}", "(?<x>a)\\k<x>"),
    "$ref": ("#", "#/$defs/a", "#/properties/a", "http://x/y", "#/allOf/0", "#/$defs/~2"),
    "role": ("user", "assistant", "system", "tool"),
}
"""Well-formed values by the name of a member: only such values reach some errors."""
_ELEMENTS: tuple[str, ...] = (
    *("0", '""', "null", "[]", "{}", '{"a":0}', '{"type":"text","text":""}', '{"role":"user","content":""}'),
    *('{"type":"reasoning"}', '["a",-1]', '{"type":"function","function":{"name":"f"}}', '{"type":"draft"}'),
)
"""Elements of large lists: values that are cheap to send, and valid elements of an API's lists."""


def small(rng: random.Random, depth: int = _DEEPEST) -> Json:
    """Return a random value of at most a few kilobytes."""
    kind = rng.randrange(10 if depth else 7)
    if kind < 5:  # noqa: PLR2004 - half of them
        return rng.choice(_SCALARS)
    match kind:
        case 5:
            return rng.choice(CHARACTERS + MARKS) * rng.choice((1, 2, 50, 500))
        case 6:
            return rng.choice((-1, 1)) * rng.getrandbits(rng.randint(1, 80))
        case 7:
            return [small(rng, depth - 1)] * rng.choice((1, 5, 40))
        case 8:
            return [small(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    return _object(rng, depth)


def fitting(rng: random.Random, kinds: Collection[str]) -> Json:
    """Return a value of one of the types in `kinds` (text, number, list, object, any), perhaps an unusual
    value.
    """
    match rng.choice(sorted(kinds)):
        case "text":
            words = ("Hi", "auto", "required", "none", "function", *CHARACTERS, *MARKS)
            return rng.choice(words) * rng.choice((1, 1, 3, 300))
        case "number":
            return rng.choice((True, False, 0, 1, 2, 3, -1, 0.5, 1.0, 100, 4096, 2**31 - 1, 2**32, 1e-6))
        case "list":
            return [fitting(rng, ("text", "number", "object")) for _ in range(rng.randint(0, 3))]
        case "object":
            return _object(rng, _DEEPEST)
    return small(rng)


def large(rng: random.Random, n_bytes: int) -> Raw:
    """Return a list, object, text or nesting of about `n_bytes` bytes."""
    element = rng.choice(_ELEMENTS)
    match rng.randrange(6):
        case 0:
            numbers = range(n_bytes // (len(element) + 7))
            return Raw("{" + ",".join(f'"{number:x}":{element}' for number in numbers) + "}")
        case 1:
            start, middle, end = rng.choice((("[", "", "]"), ('{"a":', "0", "}"), ('{"allOf":[', "0", "]}")))
            depth = max(1, n_bytes // len(start + end))
            return Raw(start * depth + middle + end * depth)
        case 2 | 3:
            shown = json.dumps(rng.choice(CHARACTERS + MARKS))[1:-1]
            return Raw('"' + shown * max(1, n_bytes // len(shown)) + '"')
    return Raw("[" + ",".join([element] * (n_bytes // (len(element) + 1))) + "]")


def _object(rng: random.Random, depth: int) -> Json:
    fields = {rng.choice(_NAMES): small(rng, depth - 1) for _ in range(rng.randint(0, 4))}
    for name in fields.keys() & _FITTING.keys():
        if rng.random() < 0.7:  # noqa: PLR2004 - mostly
            fields[name] = rng.choice(_FITTING[name])
    if rng.random() < 0.5:  # noqa: PLR2004 - half of them
        fields.setdefault("type", rng.choice(_TYPES))
    return fields


class Mutator:
    """Breaks messages, each call in one way."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ways: tuple[Callable[[Message], str | bytes], ...] = (
            self._with_wrong_value,
            self._with_wrong_value,
            self._without_field,
            self._with_more_fields,
            self._with_doubled_key,
            lambda message: written(message)[: self._rng.randrange(len(written(message)))],
            self._with_wrong_bytes,
            lambda _message: self._rng.randbytes(self._rng.randrange(200)),
            self._nested,
            lambda message: written(message) + self._rng.choice((" ", "", ",", "\ufeff")) + written(message),
        )

    def broken(self, message: Message) -> str | bytes:
        """Return a text or binary frame similar to `message`, and possibly still valid."""
        return self._rng.choice(self._ways)(copy.deepcopy(message))

    def _with_wrong_value(self, message: Message) -> str:
        """Give a field, or an item inside it, a wrong value."""
        key = self._rng.choice(list(message))
        value = message[key]
        if isinstance(value, list) and value and self._rng.random() < 0.7:  # noqa: PLR2004 - mostly
            value[self._rng.randrange(len(value))] = small(self._rng)
        elif isinstance(value, dict) and value and self._rng.random() < 0.8:  # noqa: PLR2004 - mostly
            value[self._rng.choice(list(value))] = small(self._rng)
        else:
            message[key] = small(self._rng)
        return written(message)

    def _without_field(self, message: Message) -> str:
        del message[self._rng.choice(list(message))]
        return written(message)

    def _with_more_fields(self, message: Message) -> str:
        """Return the message with unknown fields, which a peer must ignore."""
        return written(message | {f"x{i}": small(self._rng) for i in range(self._rng.randrange(1, 8))})

    def _with_doubled_key(self, message: Message) -> str:
        text, key = written(message), self._rng.choice(list(message))
        return f"{{{json.dumps(key)}:{written(small(self._rng))},{text[1:]}"

    def _with_wrong_bytes(self, message: Message) -> str | bytes:
        data = bytearray(written(message).encode())
        for _ in range(self._rng.randrange(1, 4)):
            data[self._rng.randrange(len(data))] = self._rng.randrange(256)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return bytes(data)

    def _nested(self, message: Message) -> str:
        depth = self._rng.choice((10, 150, 250, 3000))
        return written(message)[:-1] + f',"x":{"[" * depth}{"]" * depth}}}'
