"""Bringing messages into a form that a chat template takes, so that no text of theirs is lost.

Templates refuse, or leave out in silence, what their models were not trained on: a system message that comes
later, two messages of a role in a row, content beside a call. Each step here changes one such thing. Which of
them a conversation needs is found by rendering it with words in place of its texts, and looking for these.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lead.tools.argument_types import types_of
from lead.tools.call_format import CallFormat

Message = Mapping[str, Any]
Messages = Sequence[Message]
Step = Callable[[Messages], list[Message]]

_ID = re.compile(r"[a-zA-Z0-9]{9}")
_HISTORY = {"system", "developer"}


class Lost(Exception):  # noqa: N818 - what happened to a message
    """No step helps: the template refuses the messages, or leaves out the text of one."""

    def __init__(self, index: int | None, reason: str = "") -> None:
        """index: of the message whose text is left out, if that is what happens."""
        super().__init__(reason)
        self.index = index


def fitting_steps(
    messages: Messages, steps: Sequence[Step], render: Callable[[Messages], str | None]
) -> list[Step]:
    """The fewest of `steps`, in their order, after which all texts of `messages` are in the prompt.

    render: None where the template refuses the messages. Raises Lost.
    """
    probes, words = _with_words(messages)

    def first_lost(chosen: Iterable[Step]) -> int | None:
        text = render(applied(chosen, probes))
        if text is None:
            return -1
        written = text.lower()
        return next((index for index, word in words if word not in written), None)

    chosen: list[Step] = []
    lost = first_lost(chosen)
    remaining = list(steps)
    while lost is not None:
        if not remaining:
            raise Lost(None if lost < 0 else lost)
        step = remaining.pop(0)
        before = applied(chosen, probes)
        if step(before) != before:
            chosen.append(step)
            lost = first_lost(chosen)
    for step in list(chosen):
        without = [each for each in chosen if each is not step]
        if first_lost(without) is None:
            chosen = without
    return chosen


def applied(steps: Iterable[Step], messages: Messages) -> list[Message]:
    """The messages after these steps, one after another."""
    changed = list(messages)
    for step in steps:
        changed = step(changed)
    return changed


def _with_words(messages: Messages) -> tuple[list[Message], list[tuple[int, str]]]:
    """The messages with a word for each text, and the words that have to be in the prompt, by message.

    Reasoning may be left out: templates drop that of earlier turns on purpose.
    """
    words: list[tuple[int, str]] = []

    def word(index: int, text: str) -> str:
        if not text.strip():
            return text
        words.append((index, f"probe{index}and{len(words)}end"))
        return words[-1][1]

    probes: list[Message] = []
    for index, message in enumerate(messages):
        probe = {**message, "content": word(index, message["content"])}
        if message.get("tool_calls"):
            probe["tool_calls"] = [_call_with_words(call, index, word) for call in message["tool_calls"]]
        probes.append(probe)
    return probes, words


def _call_with_words(
    call: Mapping[str, Any], index: int, word: Callable[[int, str], str]
) -> Mapping[str, Any]:
    match call["function"]["arguments"]:
        case dict() as arguments:
            given: object = {key: word(index, "text") for key in arguments}
        case list() as arguments:
            given = [word(index, "text") for _ in arguments]
        case arguments:
            given = word(index, str(arguments))
    return {**call, "function": {"name": word(index, call["function"]["name"]), "arguments": given}}


def simple_tools(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tools with no more than the type and the description of each argument.

    Some templates write schemas as code, and fail on what they do not know.
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


def system_first(messages: Messages) -> list[Message]:
    """System and developer messages at the beginning become one system message."""
    n = next((n for n, each in enumerate(messages) if each["role"] not in _HISTORY), len(messages))
    if n == 0:
        return list(messages)
    return [{"role": "system", "content": _joined(each["content"] for each in messages[:n])}, *messages[n:]]


def later_system_as_user(messages: Messages) -> list[Message]:
    """System and developer messages that come later become messages of the user, in their place."""
    return [
        {"role": "user", "content": each["content"]} if n and each["role"] in _HISTORY else each
        for n, each in enumerate(messages)
    ]


def system_as_user(messages: Messages) -> list[Message]:
    """System messages become messages of the user, and part of the next one."""
    return joined_roles([{**each, "role": "user"} if each["role"] in _HISTORY else each for each in messages])


def joined_roles(messages: Messages) -> list[Message]:
    """Messages of one role in a row become one; results of tools stay apart."""
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is None or last["role"] != message["role"] or message["role"] == "tool":
            joined.append(message)
            continue
        both = {**last, **message, "content": _joined((last["content"], message["content"]))}
        if calls := [*last.get("tool_calls", ()), *message.get("tool_calls", ())]:
            both["tool_calls"] = calls
        joined[-1] = both
    return joined


def object_arguments(messages: Messages) -> list[Message]:
    """Arguments of calls that are no object become one."""

    def change(call: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments = call["function"]["arguments"]
        if isinstance(arguments, dict):
            return call
        return {**call, "function": {**call["function"], "arguments": {"arguments": arguments}}}

    return _with_calls(messages, change)


def text_arguments(messages: Messages) -> list[Message]:
    """Arguments of calls become JSON text."""

    def change(call: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return {**call, "function": {**call["function"], "arguments": text}}

    return _with_calls(messages, change)


def nine_character_ids(messages: Messages) -> list[Message]:
    """Ids of calls become nine letters and digits, as Mistral's templates require."""

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


def content_before_calls(messages: Messages) -> list[Message]:
    """Content beside calls becomes a message of its own."""
    return [part for each in messages for part in _without_content(each)]


def _without_content(message: Message) -> Iterator[Message]:
    if not (message.get("tool_calls") and message["content"].strip()):
        yield message
        return
    yield {"role": message["role"], "content": message["content"]}
    yield {**message, "content": ""}


def no_reasoning_beside_calls(messages: Messages) -> list[Message]:
    """Reasoning beside content and calls is left out."""
    reasoning = {"reasoning_content", "thinking", "reasoning"}
    return [
        {key: value for key, value in each.items() if key not in reasoning}
        if each.get("tool_calls") and each["content"].strip()
        else each
        for each in messages
    ]


def one_call_each(messages: Messages) -> list[Message]:
    """Several calls of a message become several messages, each followed by its result."""
    changed: list[Message] = []
    for message in messages:
        if message["role"] == "tool" and _takes(changed, message):
            continue
        first, *others = message.get("tool_calls", ()) or [None]
        changed.append({**message, "tool_calls": [first]} if others else message)
        changed += [{"role": message["role"], "content": "", "tool_calls": [call]} for call in others]
    return changed


def _takes(changed: list[Message], result: Message) -> bool:
    """Put a result behind its call, if that is not the last message."""
    for n, message in enumerate(changed[:-1]):
        calls = message.get("tool_calls", ())
        if len(calls) == 1 and calls[0].get("id") and calls[0]["id"] == result.get("tool_call_id"):
            if changed[n + 1]["role"] == "tool":
                continue
            changed.insert(n + 1, result)
            return True
    return False


def results_of_calls(messages: Messages) -> list[Message]:
    """Results that follow no call become messages of the user."""
    changed: list[Message] = []
    for message in messages:
        follows = changed and (changed[-1].get("tool_calls") or changed[-1]["role"] == "tool")
        changed.append(result_as_text(message) if message["role"] == "tool" and not follows else message)
    return changed


def result_as_text(message: Message) -> Message:
    """A message of the user that says what a tool returned."""
    named = {name: message[name] for name in ("tool_call_id", "name") if name in message}
    text = json.dumps({"tool_response": {**named, "content": message["content"]}}, ensure_ascii=False)
    return {"role": "user", "content": text}


def calls_as_text(calls: CallFormat) -> Step:
    """Calls become text of the content, as the model writes them, and results messages of the user."""

    def step(messages: Messages) -> list[Message]:
        changed = []
        for message in messages:
            if message["role"] == "tool":
                changed.append(result_as_text(message))
                continue
            given = message.get("tool_calls", ())
            without = {key: value for key, value in message.items() if key != "tool_calls"}
            written = calls.write([(each["function"]["name"], _as_object(each)) for each in given])
            changed.append(
                {**without, "content": _joined((message["content"], written))} if given else message
            )
        return changed

    return step


def _as_object(call: Mapping[str, Any]) -> Any:
    arguments = call["function"]["arguments"]
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def begins_with_user(messages: Messages) -> list[Message]:
    """A conversation that begins with an answer gets an empty question."""
    n = next((n for n, each in enumerate(messages) if each["role"] != "system"), len(messages))
    if n == len(messages) or messages[n]["role"] == "user":
        return list(messages)
    return [*messages[:n], {"role": "user", "content": "..."}, *messages[n:]]


def without_empty_answers(messages: Messages) -> list[Message]:
    """Answers without content and calls are left out."""
    return [
        each
        for each in messages
        if each["role"] != "assistant" or each["content"].strip() or each.get("tool_calls")
    ]


def other_roles_as_user(messages: Messages) -> list[Message]:
    """Roles that no template knows become the user."""
    known = {"system", "user", "assistant", "tool"}
    return [each if each["role"] in known else {**each, "role": "user"} for each in messages]


def steps_for(calls: CallFormat) -> list[Step]:
    """All steps, those first that change least."""
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
    messages: Messages, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> list[Message]:
    return [
        {**each, "tool_calls": [change(call) for call in each["tool_calls"]]}
        if each.get("tool_calls")
        else each
        for each in messages
    ]


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)
