"""What a client has received of an answer, streamed or whole, and whether it is what it should be."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no stubs

from lab.campaign.requests import MixedRequest

_FIELDS = ("text", "tool_calls", "tokens", "finish_reason")


@dataclass(slots=True)
class Choice:
    """One of the `n` answers. Ids of tool calls are random and left out."""

    text: str = ""
    tool_calls: dict[int, list[str]] = field(default_factory=dict)
    """By index: name and arguments."""
    tokens: list[str] = field(default_factory=list)
    """Those that came with log-probabilities."""
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None

    def take(self, choice: Mapping[str, Any]) -> bool:
        """Add a choice of a chunk, or a whole one; whether it had text."""
        part = choice.get("delta") or choice.get("message") or {}
        new = part.get("content") or choice.get("text") or ""
        self.text += new
        for position, call in enumerate(part.get("tool_calls") or []):
            own = self.tool_calls.setdefault(call.get("index", position), ["", ""])
            own[0] += call["function"].get("name") or ""
            own[1] += call["function"].get("arguments") or ""
        for token, logprob in _logprobs(choice.get("logprobs") or {}):
            self.tokens.append(token)
            self.logprobs.append(logprob)
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        return bool(new or part.get("tool_calls"))

    def begins(self, whole: "Choice") -> bool:
        """Whether `whole` may go on from here."""
        return whole.text.startswith(self.text) and all(
            name == whole.tool_calls.get(index, ["", ""])[0]
            and whole.tool_calls[index][1].startswith(arguments)
            for index, (name, arguments) in self.tool_calls.items()
        )


@dataclass(slots=True)
class Answer:
    """The choices by index, and the usage. `error`: the type of the error that ended it."""

    choices: dict[int, Choice] = field(default_factory=dict)
    n_prompt: int | None = None
    n_generated: int | None = None
    error: str | None = None
    done: bool = False
    """It ended as answers do: with [DONE], or as a whole body."""

    def take(self, event: Mapping[str, Any]) -> bool:
        """Add an event of a stream, or a whole body; whether it had text."""
        if error := event.get("error"):
            self.error = str(error.get("type"))
        has_text = False
        for choice in event.get("choices", []):
            own = self.choices.setdefault(choice["index"], Choice())
            has_text |= own.take(choice)
        if usage := event.get("usage"):
            self.n_prompt, self.n_generated = usage["prompt_tokens"], usage["completion_tokens"]
        return has_text

    def differences(self, expected: "Answer", *, exact: bool = False) -> list[str]:
        """The fields that are not as in `expected`, for a client that stayed to the end.

        exact: log-probabilities count, too; they differ as soon as any bit of the logits does.
        """
        found = [
            name for name in ("n_prompt", "n_generated") if getattr(self, name) != getattr(expected, name)
        ]
        if self.choices.keys() != expected.choices.keys():
            return ["choices", *found]
        for index, choice in self.choices.items():
            fields = (*_FIELDS, "logprobs") if exact else _FIELDS
            other = expected.choices[index]
            found += [name for name in fields if getattr(choice, name) != getattr(other, name)]
        return found

    def begins(self, expected: "Answer") -> bool:
        """Whether `expected` may go on from what a client saw that left early."""
        return all(
            choice.begins(expected.choices.get(index, Choice())) for index, choice in self.choices.items()
        )


def invalid_parts(answer: Answer, request: MixedRequest) -> list[str]:
    """What a finished answer breaks of the request's schema or tools."""
    found = []
    for choice in answer.choices.values():
        if request.schema is not None and choice.finish_reason == "stop":
            found += _violations(choice.text, request.schema)
        if choice.finish_reason == "tool_calls":
            for name, arguments in choice.tool_calls.values():
                found += _violations(arguments, _parameters(request, name))
    return found


def _logprobs(logprobs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Tokens and their log-probabilities, of the shape of chats, or that of text completions."""
    for entry in logprobs.get("content") or []:
        yield entry["token"], entry["logprob"]
    yield from zip(logprobs.get("tokens") or [], logprobs.get("token_logprobs") or [], strict=False)


def _parameters(request: MixedRequest, name: str) -> Mapping[str, Any] | bool:
    """The schema of a tool's arguments; one that nothing is valid against if there is no such tool."""
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request.body["tools"]}
    schema: Mapping[str, Any] | bool = tools.get(name, False)
    return schema


def _violations(text: str, schema: Mapping[str, Any] | bool) -> list[str]:
    try:
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)
    except (ValueError, jsonschema.ValidationError):
        return ["schema"]
    return []
