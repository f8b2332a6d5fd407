"""Brings messages with tool calls, and the tools, into a form that a chat template accepts."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lead.chat_format.fitting import (
    Step,
    TemplateMessage,
    TemplateMessages,
    begins_with_user,
    joined_roles,
    joined_texts,
    later_system_as_user,
    other_roles_as_user,
    system_as_user,
    system_first,
    without_empty_answers,
)
from lead.tools.argument_types import types_of
from lead.tools.call_format import CallFormat

_ID = re.compile(r"[a-zA-Z0-9]{9}")


def steps(calls: CallFormat) -> list[Step]:
    """Return all steps, beginning with the smallest change."""
    return [
        object_arguments,
        text_arguments,
        nine_character_ids,
        without_empty_answers,
        system_first,
        later_system_as_user,
        joined_roles,
        results_of_calls,
        one_call_each,
        no_reasoning_beside_calls,
        content_before_calls,
        system_as_user,
        other_roles_as_user,
        begins_with_user,
        calls_as_text(calls),
        joined_roles,
    ]


def _with_calls(
    messages: TemplateMessages, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> list[TemplateMessage]:
    return [
        {**each, "tool_calls": [change(call) for call in each["tool_calls"]]}
        if each.get("tool_calls")
        else each
        for each in messages
    ]


def simple_tools(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tools, reduced to the type and the description of each argument.

    Some templates write schemas as code, and fail on unknown keywords.
    """
    return [{**tool, "function": _simple_function(tool["function"])} for tool in tools]


def _simple_function(function: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = function["parameters"].get("properties")
    given = properties if isinstance(properties, dict) else {}
    simple = {
        name: {"description": "", **_simple_type(each), **_described(each)} for name, each in given.items()
    }
    return {**function, "parameters": {"type": "object", "properties": simple, "required": []}}


def _simple_type(schema: object) -> Mapping[str, Any]:
    kinds = types_of(schema) - {"null"}
    kind = next((each for each in ("string", "integer", "number", "boolean") if each in kinds), None)
    return {"type": kind} if kind else {"type": "object", "additionalProperties": {"type": "string"}}


def _described(schema: object) -> Mapping[str, Any]:
    said = schema.get("description") if isinstance(schema, dict) else None
    return {"description": said} if isinstance(said, str) else {}


# Steps


def object_arguments(messages: TemplateMessages) -> list[TemplateMessage]:
    """Convert the arguments of calls to an object: {"arguments": …}, unless they are an object already."""

    def change(call: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments = call["function"]["arguments"]
        if isinstance(arguments, dict):
            return call
        return {**call, "function": {**call["function"], "arguments": {"arguments": arguments}}}

    return _with_calls(messages, change)


def text_arguments(messages: TemplateMessages) -> list[TemplateMessage]:
    """Turn the arguments of calls into JSON text."""

    def change(call: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return {**call, "function": {**call["function"], "arguments": text}}

    return _with_calls(messages, change)


def nine_character_ids(messages: TemplateMessages) -> list[TemplateMessage]:
    """Replace ids of calls by nine letters and digits, as Mistral's templates require."""

    def short(call_id: object) -> str:
        text = str(call_id or "")
        return (
            text if _ID.fullmatch(text) else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:9]
        )

    changed = _with_calls(messages, lambda call: {**call, "id": short(call.get("id"))})
    return [
        {**each, "tool_call_id": short(each.get("tool_call_id"))} if each["role"] == "tool" else each
        for each in changed
    ]


def content_before_calls(messages: TemplateMessages) -> list[TemplateMessage]:
    """Move content out of messages with calls, into a message of its own before each."""
    return [part for each in messages for part in _without_content(each)]


def _without_content(message: TemplateMessage) -> Iterator[TemplateMessage]:
    if not (message.get("tool_calls") and message["content"].strip()):
        yield message
        return
    yield {"role": message["role"], "content": message["content"]}
    yield {**message, "content": ""}


def no_reasoning_beside_calls(messages: TemplateMessages) -> list[TemplateMessage]:
    """Drop reasoning from messages that have both content and calls."""
    reasoning = {"reasoning_content", "thinking", "reasoning"}
    return [
        {key: value for key, value in each.items() if key not in reasoning}
        if each.get("tool_calls") and each["content"].strip()
        else each
        for each in messages
    ]


def one_call_each(messages: TemplateMessages) -> list[TemplateMessage]:
    """Split a message with several calls into several messages, each followed by its result."""
    changed: list[TemplateMessage] = []
    for message in messages:
        if message["role"] == "tool" and _takes(changed, message):
            continue
        first, *others = message.get("tool_calls", ()) or [None]
        changed.append({**message, "tool_calls": [first]} if others else message)
        changed += [{"role": message["role"], "content": "", "tool_calls": [call]} for call in others]
    return changed


def _takes(changed: list[TemplateMessage], result: TemplateMessage) -> bool:
    """Insert a result after its call if another message follows the call; return whether it was inserted."""
    for n, message in enumerate(changed[:-1]):
        calls = message.get("tool_calls", ())
        if len(calls) == 1 and calls[0].get("id") and calls[0]["id"] == result.get("tool_call_id"):
            if changed[n + 1]["role"] == "tool":
                continue
            changed.insert(n + 1, result)
            return True
    return False


def results_of_calls(messages: TemplateMessages) -> list[TemplateMessage]:
    """Turn results that follow no call into user messages."""
    changed: list[TemplateMessage] = []
    for message in messages:
        follows = changed and (changed[-1].get("tool_calls") or changed[-1]["role"] == "tool")
        changed.append(result_as_text(message) if message["role"] == "tool" and not follows else message)
    return changed


def result_as_text(message: TemplateMessage) -> TemplateMessage:
    """Return a user message with the content of `message`, the result of a tool."""
    named = {name: message[name] for name in ("tool_call_id", "name") if name in message}
    text = json.dumps({"tool_response": {**named, "content": message["content"]}}, ensure_ascii=False)
    return {"role": "user", "content": text}


def calls_as_text(calls: CallFormat) -> Step:
    """Return a step that turns calls into content, written as the model writes calls.

    The step turns results of calls into user messages.
    """

    def step(messages: TemplateMessages) -> list[TemplateMessage]:
        changed = []
        for message in messages:
            if message["role"] == "tool":
                changed.append(result_as_text(message))
                continue
            given = message.get("tool_calls", ())
            without = {key: value for key, value in message.items() if key != "tool_calls"}
            written = calls.write([(each["function"]["name"], _as_object(each)) for each in given])
            changed.append(
                {**without, "content": joined_texts((message["content"], written))} if given else message
            )
        return changed

    return step


def _as_object(call: Mapping[str, Any]) -> Any:
    arguments = call["function"]["arguments"]
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
