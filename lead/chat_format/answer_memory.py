"""Keeps the answers of a lead, for later turns of the same conversations
(`lead.chat_format.written_answers`).
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from lead.chat_format.request_parts import ChatMessage

_DIGEST_BYTES = 16
_OBJECT_TOKENS = 100
"""The memory of a turn or an answer besides its tokens, in tokens."""


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """An answer in the text of a prompt, from `start` to `end`, and the tokens that the model wrote for it.

    digest: the digest of the prompt up to `end`.
    """

    start: int
    end: int
    digest: bytes
    tokens: "array[int]"


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt, and the answer to it.

    answers: earlier answers, in order. n_characters, digest: the length and digest of the prompt's text,
    perhaps without white space at its end, which templates do not always repeat. tokens: the tokens of this
    white space and of the answer.
    """

    answers: tuple[WrittenAnswer, ...]
    n_characters: int
    digest: bytes
    tokens: "array[int]"

    @classmethod
    def begin(cls, prompt: str, answers: Sequence[WrittenAnswer], space: "array[int]", n_space: int) -> Self:
        """Start a turn whose answer begins with the last `n_space` characters of the prompt, which have the
        tokens `space`.
        """
        n_characters = len(prompt) - n_space
        return cls(tuple(answers), n_characters, Digests(prompt).of(n_characters), space)

    @property
    def n_tokens(self) -> int:
        """An upper bound of the tokens that the turn holds, as other turns may share answers.

        Objects count as tokens, too.
        """
        texts = [self.tokens, *(each.tokens for each in self.answers)]
        return sum(len(tokens) + _OBJECT_TOKENS for tokens in texts)

    def after(self, last: "Turn | None", n_known: int) -> "Turn":
        """Return a copy of the turn that shares its first `n_known` answers with the previous turn `last`."""
        return replace(self, answers=(last.answers[:n_known] if last else ()) + self.answers)


class Digests:
    """Digests of prefixes of a text, for ascending lengths."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._n = 0
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def of(self, n: int) -> bytes:
        """Return the digest of the first `n` characters; `n` must not decrease between calls.

        Empty if the text is shorter.
        """
        if not self._n <= n <= len(self._text):
            return b""
        self._digest.update(self._text[self._n : n].encode("utf-8", "replace"))
        self._n = n
        return self._digest.digest()


class AnswerMemory:
    """The latest turns of conversations, by the messages of their prompts.

    When they have more than `n_tokens` in all, the least recently used turn is dropped.
    """

    def __init__(self, n_tokens: int = 1 << 22) -> None:
        self._n_tokens = n_tokens
        self._n_kept = 0
        self._turns = OrderedDict[bytes, Turn]()

    def find(self, owner: str, messages: Sequence[ChatMessage]) -> Turn | None:
        """Return the latest stored turn whose prompt is a beginning of `messages`, followed by an answer;
        None if there is none.
        """
        before = [key for key, each in _keys(owner, messages) if each and each.role == "assistant"]
        key = next((key for key in reversed(before) if key in self._turns), None)
        if key is None:
            return None
        self._turns.move_to_end(key)
        return self._turns[key]

    def add(self, owner: str, messages: Sequence[ChatMessage], turn: Turn, tokens: Sequence[int]) -> None:
        """Store `turn`, whose prompt has the `messages`, with its answer `tokens`."""
        *_, (key, _) = _keys(owner, messages)
        if earlier := self._turns.pop(key, None):
            self._n_kept -= earlier.n_tokens
        self._turns[key] = replace(turn, tokens=turn.tokens + array("i", tokens))
        self._n_kept += self._turns[key].n_tokens
        while self._n_kept > self._n_tokens:
            _, oldest = self._turns.popitem(last=False)
            self._n_kept -= oldest.n_tokens


def _keys(owner: str, messages: Sequence[ChatMessage]) -> Iterator[tuple[bytes, ChatMessage | None]]:
    """Yield a key for each beginning of a conversation, and the message that follows."""
    digest = hashlib.blake2b(owner.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES)
    for message in messages:
        yield digest.digest(), message
        digest.update(message.model_dump_json(exclude_unset=True).encode("utf-8", "replace"))
    yield digest.digest(), None
