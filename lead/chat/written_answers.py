"""What the model wrote itself, in the prompts of later turns.

A client sends an answer back as a message, and the chat template writes it once more: with other white
space, other JSON, or in other tokens than the model chose. Then a cache does not go on from there. So the
tokens of answers are kept, and a later prompt has them where the template writes what means the same.
"""

import hashlib
import itertools
import json
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from lead.chat.control_texts import RenderedPrompt
from lead.chat.deltas import AssistantMessage
from lead.chat.output_format import ParserConfig
from lead.chat.parser import OutputParser
from lead.chat.request_parts import ChatMessage, FunctionCallParam, TemplateInput, ToolCallParam

_DIGEST_BYTES = 16
_OBJECT_TOKENS = 100
"""What a turn or an answer takes besides its tokens, as so many of them."""
_CALL_ID = "call00001"
"""Mistral's templates require nine letters and digits."""


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """An answer in the text of a prompt, from `start` to `end`, and what the model wrote for it.

    digest: of the prompt up to `end`.
    """

    start: int
    end: int
    digest: bytes
    tokens: "array[int]"


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt, and the answer to it.

    answers: earlier ones, in their order. n_characters, digest: of the prompt's text, maybe without white
    space at its end, which templates do not always write again. tokens: of that space, and of the answer.
    """

    answers: tuple[WrittenAnswer, ...]
    n_characters: int
    digest: bytes
    tokens: "array[int]"

    @classmethod
    def begin(cls, prompt: str, answers: Sequence[WrittenAnswer], space: "array[int]", n_space: int) -> Self:
        """An answer begins with the last `n_space` characters of the prompt, whose tokens are `space`."""
        n_characters = len(prompt) - n_space
        return cls(tuple(answers), n_characters, _Digests(prompt).of(n_characters), space)

    @property
    def n_tokens(self) -> int:
        """The most that it may hold: other turns may have the same answers. Objects count as tokens."""
        texts = [self.tokens, *(each.tokens for each in self.answers)]
        return sum(len(tokens) + _OBJECT_TOKENS for tokens in texts)

    def after(self, last: "Turn | None", n_known: int) -> "Turn":
        """With the first answers of the turn before: the objects are shared."""
        return replace(self, answers=(last.answers[:n_known] if last else ()) + self.answers)


MeansSame = Callable[[int, int], bool]
"""Whether a prompt means the same between two positions as the answer of the turn before."""


def answers_in(
    prompt: RenderedPrompt, last: Turn | None, ends: Sequence[str], means_same: MeansSame
) -> tuple[tuple[WrittenAnswer, ...], int]:
    """The answers in a prompt, and how many of them are from the prompt of the turn before.

    ends: the texts of tokens that end an answer.
    """
    if last is None:
        return (), 0
    digests = _Digests(prompt.text)
    known = tuple(itertools.takewhile(lambda each: digests.of(each.end) == each.digest, last.answers))
    if known != last.answers or digests.of(last.n_characters) != last.digest:
        return known, len(known)
    start = last.n_characters
    end = min((at for each in ends if (at := prompt.find(each, start)) >= 0), default=start)
    if end == start or not means_same(start, end):
        return known, len(known)
    return (*known, WrittenAnswer(start, end, digests.of(end), last.tokens)), len(known)


class Meaning(NamedTuple):
    """An answer without what makes no difference. calls: names and arguments."""

    content: str
    reasoning: str
    calls: Sequence[tuple[str, str]]


def meaning(config: ParserConfig, text: str) -> Meaning:
    """What a whole answer says."""
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
    """The messages with an answer, and what may come next: the user again, or the result of a call.

    They show what a chat template then makes of the messages before. reasons: the model does, and not every
    client sends that back.
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


class _Digests:
    """Of longer and longer beginnings of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._n = 0
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def of(self, n: int) -> bytes:
        """Of the first `n` characters, no fewer than before; empty if the text is shorter."""
        if not self._n <= n <= len(self._text):
            return b""
        self._digest.update(self._text[self._n : n].encode("utf-8", "replace"))
        self._n = n
        return self._digest.digest()


class AnswerMemory:
    """The last turns of conversations, by the messages of their prompts.

    Once there are more than `n_tokens` in them, that which was used least recently goes.
    """

    def __init__(self, n_tokens: int = 1 << 22) -> None:
        self._n_tokens = n_tokens
        self._n_kept = 0
        self._turns = OrderedDict[bytes, Turn]()

    def find(self, owner: str, messages: Sequence[ChatMessage]) -> Turn | None:
        """The turn before the last one of this conversation."""
        before = [key for key, each in _keys(owner, messages) if each and each.role == "assistant"]
        key = next((key for key in reversed(before) if key in self._turns), None)
        if key is None:
            return None
        self._turns.move_to_end(key)
        return self._turns[key]

    def add(self, owner: str, messages: Sequence[ChatMessage], turn: Turn, tokens: Sequence[int]) -> None:
        """These messages were answered with `tokens`."""
        *_, (key, _) = _keys(owner, messages)
        if earlier := self._turns.pop(key, None):
            self._n_kept -= earlier.n_tokens
        self._turns[key] = replace(turn, tokens=turn.tokens + array("i", tokens))
        self._n_kept += self._turns[key].n_tokens
        while self._n_kept > self._n_tokens:
            _, oldest = self._turns.popitem(last=False)
            self._n_kept -= oldest.n_tokens


def _keys(owner: str, messages: Sequence[ChatMessage]) -> Iterator[tuple[bytes, ChatMessage | None]]:
    """A key for each beginning of a conversation, and the message that follows."""
    digest = hashlib.blake2b(owner.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES)
    for message in messages:
        yield digest.digest(), message
        digest.update(message.model_dump_json(exclude_unset=True).encode("utf-8", "replace"))
    yield digest.digest(), None
