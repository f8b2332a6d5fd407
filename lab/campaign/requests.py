"""Mixed requests, each drawn from a seed and its index alone, so that any of them can be asked again."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.measuring.builtin_questions import KINDS as PROMPTS

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"

NEXT_TURN = 1_000_000
"""A request's index plus this number is the index of the conversation's next turn."""

Body = dict[str, Any]
Draw = Callable[[random.Random], Body]

_SHORT, _LONG = (4, 24), (60, 120)
"""Token limits: most answers are short, so that many of them meet many faults; long ones span restarts."""
_SHARE_LONG, _SHARE_LEAVING, _SHARE_STREAMED, _SHARE_GREEDY = 0.1, 0.2, 0.6, 0.4


def _object(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema whose members are all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_SCHEMAS: tuple[Mapping[str, Any], ...] = (
    _object(
        name={"type": "string", "maxLength": 12},
        age={"type": "integer", "minimum": 0, "maximum": 120},
        mood={"enum": ["happy", "sad", "tired"]},
    ),
    {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,8}$"}, "minItems": 2, "maxItems": 4},
    _object(
        found={"type": "boolean"}, place={"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 10}]}
    ),
)
_CITIES = ["Oslo", "Lima", "Kyoto"]
_TOOL = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": _object(city={"enum": _CITIES}, days={"type": "integer", "minimum": 1, "maximum": 9}),
}


@dataclass(frozen=True, slots=True)
class MixedRequest:
    """A chat or completion request.

    `leaves_after`: the number of events with text after which the client disconnects; None: it stays.
    """

    index: int
    kind: str
    path: str
    body: Mapping[str, Any]
    leaves_after: int | None = None

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema that a finished answer must satisfy; None: the answer may be any text."""
        schema: Mapping[str, Any] | None = (
            self.body.get("response_format", {}).get("json_schema", {}).get("schema")
        )
        return schema


def draw(seed: int, index: int) -> MixedRequest:
    """Return the request with this index."""
    rng = random.Random(f"{seed} request {index}")  # noqa: S311 - a seeded choice is wanted
    kind = rng.choice(list(KINDS))
    body = _common(rng) | KINDS[kind](rng)
    leaves_after = rng.randint(1, 6) if body.get("stream") and rng.random() < _SHARE_LEAVING else None
    return MixedRequest(index, kind, CHAT if "messages" in body else COMPLETION, body, leaves_after)


def with_logprobs(request: MixedRequest) -> MixedRequest:
    """Return a copy of the request that asks for the log-probabilities of its tokens."""
    asked: Body = {"logprobs": 0} if request.path == COMPLETION else {"logprobs": True}
    return replace(request, body=asked | dict(request.body))


def next_turn(request: MixedRequest, answer: str) -> MixedRequest:
    """Return the next turn of a chat, whose prompt repeats the generated text."""
    turns = [
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Tell me more about that."},
    ]
    body = {**request.body, "messages": [*request.body["messages"], *turns]}
    return replace(request, index=request.index + NEXT_TURN, kind="next turn", body=body)


def _common(rng: random.Random) -> Body:
    body: Body = {
        "max_tokens": rng.randint(*(_LONG if rng.random() < _SHARE_LONG else _SHORT)),
        "seed": rng.randrange(1 << 31),
        "temperature": 0.0 if rng.random() < _SHARE_GREEDY else round(rng.uniform(0.4, 1.1), 2),
    }
    if rng.random() < _SHARE_STREAMED:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _text(rng: random.Random) -> str:
    return PROMPTS[rng.choice(list(PROMPTS))](rng)


def _chat(rng: random.Random) -> Body:
    return {"messages": [{"role": "user", "content": _text(rng)}]}


def _second_turn(rng: random.Random) -> Body:
    first, second = _chat(rng)["messages"], _chat(rng)["messages"]
    system = {"role": "system", "content": "Answer briefly."}
    return {"messages": [system, *first, {"role": "assistant", "content": "Of course."}, *second]}


def _completion(rng: random.Random) -> Body:
    return {"prompt": _text(rng)}


def _schema(rng: random.Random) -> Body:
    schema = {"name": "answer", "schema": rng.choice(_SCHEMAS)}
    return _chat(rng) | {"response_format": {"type": "json_schema", "json_schema": schema}, "max_tokens": 60}


def _tools(rng: random.Random) -> Body:
    message = {"role": "user", "content": f"What is the weather in {rng.choice(_CITIES)}?"}
    choice = rng.choice(("auto", "required"))
    return {
        "messages": [message],
        "tools": [{"type": "function", "function": _TOOL}],
        "tool_choice": choice,
        "max_tokens": 50,
    }


def _penalties(rng: random.Random) -> Body:
    return _chat(rng) | {
        "repeat_penalty": round(rng.uniform(1.0, 1.3), 2),
        "presence_penalty": round(rng.uniform(0.0, 1.0), 2),
        "frequency_penalty": round(rng.uniform(0.0, 1.0), 2),
        "dry_multiplier": rng.choice((0.0, 0.8)),
    }


def _prediction(rng: random.Random) -> Body:
    request = _chat(rng)
    text = request["messages"][0]["content"].partition(": ")[2] or "Once upon a time, there was a fox."
    return request | {"prediction": {"type": "content", "content": text}}


KINDS: Mapping[str, Draw] = {
    "chat": _chat,
    "second turn": _second_turn,
    "completion": _completion,
    "n = 2": lambda rng: _chat(rng) | {"n": 2},
    "schema": _schema,
    "tools": _tools,
    "logprobs": lambda rng: _chat(rng) | {"logprobs": True, "top_logprobs": rng.randint(0, 4)},
    "completion with logprobs": lambda rng: _completion(rng) | {"logprobs": rng.randint(0, 4)},
    "penalties": _penalties,
    "stop strings": lambda rng: _chat(rng) | {"stop": rng.sample((".", " the", "\n", "and", "e "), 2)},
    "prediction": _prediction,
    "private": lambda rng: _chat(rng) | {"private": True},
}
