"""Brings messages into a form that a chat template accepts, without losing any of their texts.

Templates refuse, or silently leave out, forms that their models were not trained on: a later system message,
two messages of the same role in a row, content beside a call. Each step here changes one such form. To find
the steps that a conversation needs, it is rendered with probe words in place of its texts, and the result is
searched for these words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

TemplateMessage = Mapping[str, Any]
TemplateMessages = Sequence[TemplateMessage]
Step = Callable[[TemplateMessages], list[TemplateMessage]]

_HISTORY = {"system", "developer"}


class Lost(Exception):  # noqa: N818 - what happened to a message
    """No step helps: the template refuses the messages, or leaves out one of their texts."""

    def __init__(self, index: int | None, reason: str = "") -> None:
        """index: the index of the message whose text is left out; None: the template refuses the messages."""
        super().__init__(reason)
        self.index = index


def fitting_steps(
    messages: TemplateMessages, steps: Sequence[Step], render: Callable[[TemplateMessages], str | None]
) -> list[Step]:
    """Return a minimal selection of `steps`, in order, after which the prompt has all texts of `messages`.

    render: returns None if the template refuses the messages. Raises Lost if no selection is enough.
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
    # a later step may have made an earlier one unnecessary
    for step in list(chosen):
        without = [each for each in chosen if each is not step]
        if first_lost(without) is None:
            chosen = without
    return chosen


def applied(steps: Iterable[Step], messages: TemplateMessages) -> list[TemplateMessage]:
    """Return the messages changed by the steps, in order."""
    changed = list(messages)
    for step in steps:
        changed = step(changed)
    return changed


def _with_words(messages: TemplateMessages) -> tuple[list[TemplateMessage], list[tuple[int, str]]]:
    """Return the messages with a probe word in place of each text, and the words with their message's index.

    Each word must be in the prompt. Reasoning gets no word, because templates drop the reasoning of earlier
    turns on purpose.
    """
    words: list[tuple[int, str]] = []

    def word(index: int, text: str) -> str:
        if not text.strip():
            return text
        words.append((index, f"probe{index}and{len(words)}end"))
        return words[-1][1]

    probes: list[TemplateMessage] = []
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


# Steps


def system_first(messages: TemplateMessages) -> list[TemplateMessage]:
    """Merge system and developer messages at the beginning into one system message."""
    n = next((n for n, each in enumerate(messages) if each["role"] not in _HISTORY), len(messages))
    if n == 0:
        return list(messages)
    return [
        {"role": "system", "content": joined_texts(each["content"] for each in messages[:n])},
        *messages[n:],
    ]


def later_system_as_user(messages: TemplateMessages) -> list[TemplateMessage]:
    """Turn system and developer messages, except the first message, into user messages in the same place."""
    return [
        {"role": "user", "content": each["content"]} if n and each["role"] in _HISTORY else each
        for n, each in enumerate(messages)
    ]


def system_as_user(messages: TemplateMessages) -> list[TemplateMessage]:
    """Turn system messages into user messages, each merged with the next message."""
    return joined_roles([{**each, "role": "user"} if each["role"] in _HISTORY else each for each in messages])


def joined_roles(messages: TemplateMessages) -> list[TemplateMessage]:
    """Merge successive messages of the same role; results of tools stay separate."""
    joined: list[TemplateMessage] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is None or last["role"] != message["role"] or message["role"] == "tool":
            joined.append(message)
            continue
        both = {**last, **message, "content": joined_texts((last["content"], message["content"]))}
        if calls := [*last.get("tool_calls", ()), *message.get("tool_calls", ())]:
            both["tool_calls"] = calls
        joined[-1] = both
    return joined


def begins_with_user(messages: TemplateMessages) -> list[TemplateMessage]:
    """Put the question "..." before a conversation that does not begin with a user message."""
    n = next((n for n, each in enumerate(messages) if each["role"] != "system"), len(messages))
    if n == len(messages) or messages[n]["role"] == "user":
        return list(messages)
    return [*messages[:n], {"role": "user", "content": "..."}, *messages[n:]]


def without_empty_answers(messages: TemplateMessages) -> list[TemplateMessage]:
    """Drop answers without content and calls."""
    return [
        each
        for each in messages
        if each["role"] != "assistant" or each["content"].strip() or each.get("tool_calls")
    ]


def other_roles_as_user(messages: TemplateMessages) -> list[TemplateMessage]:
    """Turn messages of unusual roles into user messages."""
    known = {"system", "user", "assistant", "tool"}
    return [each if each["role"] in known else {**each, "role": "user"} for each in messages]


def joined_texts(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)


STEPS = (
    without_empty_answers,
    system_first,
    later_system_as_user,
    joined_roles,
    system_as_user,
    other_roles_as_user,
    begins_with_user,
    joined_roles,
)
"""All steps that do not concern calls, beginning with the smallest change."""
