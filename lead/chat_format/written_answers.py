"""The tokens of the model's own answers, for the prompts of later turns.

A client sends an answer back as a message, and the chat template writes it again. Its white space or JSON may
then differ, or it may have other tokens than the model chose. A cache would be useless after the difference.
Therefore the tokens of answers are stored, and a later prompt uses them where the template writes text with
the same meaning.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lead.chat_format.answer_memory import Digests, Turn, WrittenAnswer
from lead.chat_format.control_texts import RenderedPrompt
from lead.chat_format.deltas import AssistantMessage
from lead.chat_format.output_format import ParserConfig
from lead.chat_format.parser import OutputParser
from lead.chat_format.request_parts import ChatMessage, FunctionCallParam, TemplateInput, ToolCallParam

_MAX_PARTS = 2
_CALL_ID = "call00001"
"""The id of a sample call; Mistral's templates require nine letters and digits."""

Range = tuple[int, int]
"""The start and end of a part of a prompt, in characters."""
MeansSame = Callable[[Sequence[Range]], bool]
"""A function that returns whether parts of a prompt together mean the same as the previous turn's answer."""


@dataclass(frozen=True, slots=True)
class TurnMarks:
    """The texts that mark turns. ends: the texts of tokens that end an answer. calls: the texts with which
    calls begin.
    """

    ends: Sequence[str]
    calls: Sequence[str] = ()


def answers_in(
    prompt: RenderedPrompt, last: Turn | None, marks: TurnMarks, means_same: MeansSame
) -> tuple[tuple[WrittenAnswer, ...], int]:
    """Return the answers in a prompt, and the number of them that were already in the previous
    turn's prompt.
    """
    if last is None:
        return (), 0
    digests = Digests(prompt.text)
    known = tuple(itertools.takewhile(lambda each: digests.of(each.end) == each.digest, last.answers))
    if len(known) < len(last.answers) or digests.of(last.n_characters) != last.digest:
        return known, len(known)
    start = last.n_characters
    for parts in _answers_from(start, prompt, marks):
        if means_same(parts):
            end = parts[-1][1]
            return (*known, WrittenAnswer(start, end, digests.of(end), last.tokens)), len(known)
    return known, len(known)


def _answers_from(start: int, prompt: RenderedPrompt, marks: TurnMarks) -> Iterator[list[Range]]:
    """Yield candidates for the answer that begins at `start`, each as a list of ranges.

    The first candidate ends at an end mark. If the template writes calls as a message of their own, the next
    candidate has these calls as a second range.
    """
    text, parts = prompt.text, list[Range]()
    before = max((text.rfind(each, 0, start) for each in marks.ends), default=-1)
    begins = text[before:start] if before >= 0 else ""
    for _ in range(_MAX_PARTS):
        end, mark = min(
            ((at, each) for each in marks.ends if (at := prompt.find(each, start)) >= 0), default=(start, "")
        )
        if end == start:
            return
        parts.append((start, end))
        yield parts
        start = end + len(begins if begins and text.startswith(begins, end) else mark)
        if not text[start:].lstrip().startswith(tuple(marks.calls)):
            return


class Meaning(NamedTuple):
    """The parts of an answer that are compared. calls: names and arguments."""

    content: str
    reasoning: str
    calls: Sequence[tuple[str, str]]


def meaning(config: ParserConfig, text: str) -> Meaning:
    """Parse a whole answer into content, reasoning and calls."""
    parser = OutputParser(config)
    message = AssistantMessage.of([*parser.push(text), *parser.finish()])
    calls = [(call.name, _canonical(call.arguments)) for call in message.calls]
    return Meaning(message.content.strip(), message.reasoning.strip(), calls)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def next_turns(conversation: TemplateInput, *, reasons: bool) -> Iterator[list[ChatMessage]]:
    """Yield variants of the messages, each with a sample answer and one more message.

    That message is the user's, or the result of a call. The rendered variants show how a chat template writes
    earlier messages in later turns. reasons: the model reasons. Not every client sends reasoning back, so
    there is a variant without it.
    """
    messages = list(conversation.messages[:-1] if conversation.continues else conversation.messages)
    answer = ChatMessage(role="assistant", content="@", reasoning_content="@" if reasons else None)
    next_message = ChatMessage(role="user", content="@")
    yield [*messages, answer, next_message]
    if conversation.tools:
        name = conversation.tools[0]["function"]["name"]
        call = ToolCallParam(id=_CALL_ID, function=FunctionCallParam(name=name))
        answer = answer.model_copy(update={"content": "", "tool_calls": [call]})
        next_message = ChatMessage(role="tool", content="@", tool_call_id=_CALL_ID)
        yield [*messages, answer, next_message]
    if reasons:
        yield [*messages, answer.model_copy(update={"reasoning_content": None}), next_message]
