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
"""The memory that a turn or an answer needs in addition to its tokens, as a number of tokens."""


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """An answer in the text of a prompt, with the tokens in which the model wrote it.

    start, end: the answer's position in the text, in characters. digest: the digest of the text up to `end`.
    """

    start: int
    end: int
    digest: bytes
    tokens: "array[int]"


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt, and the answer to it.

    answers: the earlier answers in the prompt, in order. n_characters, digest: the length and digest of the
    prompt's text. White space at its end is left out if it counts as part of the answer, because templates do
    not always repeat it. tokens: the tokens of this white space and of the answer.
    """

    answers: tuple[WrittenAnswer, ...]
    n_characters: int
    digest: bytes
    tokens: "array[int]"

    @classmethod
    def begin(cls, prompt: str, answers: Sequence[WrittenAnswer], space: "array[int]", n_space: int) -> Self:
        """Start a turn whose answer begins with white space from the prompt.

        This white space is the prompt's last `n_space` characters, and has the tokens `space`.
        """
        n_characters = len(prompt) - n_space
        return cls(tuple(answers), n_characters, Digests(prompt).of(n_characters), space)

    @property
    def n_tokens(self) -> int:
        """An upper bound of the turn's memory, as a number of tokens; other turns may share its answers."""
        texts = [self.tokens, *(each.tokens for each in self.answers)]
        return sum(len(tokens) + _OBJECT_TOKENS for tokens in texts)

    def after(self, last: "Turn | None", n_known: int) -> "Turn":
        """Return a copy of the turn that shares its first `n_known` answers with the previous turn `last`."""
        return replace(self, answers=(last.answers[:n_known] if last else ()) + self.answers)


class Digests:
    """Computes digests of prefixes of a text, in the order of their lengths."""

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

    While all turns together need more than `n_tokens`, the least recently used turn is dropped.
    """

    def __init__(self, n_tokens: int = 1 << 22) -> None:
        self._n_tokens = n_tokens
        self._n_kept = 0
        self._turns = OrderedDict[bytes, Turn]()

    def find(self, owner: str, messages: Sequence[ChatMessage]) -> Turn | None:
        """Return the latest stored turn of which `messages` contain the prompt and an answer.

        The prompt is at their beginning, and the answer follows it. None if there is no such turn.
        """
        before = [key for key, each in _keys(owner, messages) if each and each.role == "assistant"]
        key = next((key for key in reversed(before) if key in self._turns), None)
        if key is None:
            return None
        self._turns.move_to_end(key)
        return self._turns[key]

    def add(self, owner: str, messages: Sequence[ChatMessage], turn: Turn, tokens: Sequence[int]) -> None:
        """Store `turn`, whose prompt has these `messages` and whose answer has these `tokens`."""
        *_, (key, _) = _keys(owner, messages)
        if earlier := self._turns.pop(key, None):
            self._n_kept -= earlier.n_tokens
        self._turns[key] = replace(turn, tokens=turn.tokens + array("i", tokens))
        self._n_kept += self._turns[key].n_tokens
        while self._n_kept > self._n_tokens:
            _, oldest = self._turns.popitem(last=False)
            self._n_kept -= oldest.n_tokens


def _keys(owner: str, messages: Sequence[ChatMessage]) -> Iterator[tuple[bytes, ChatMessage | None]]:
    """Yield a key for each beginning of a conversation, and the message after it (None after the whole)."""
    digest = hashlib.blake2b(owner.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES)
    for message in messages:
        yield digest.digest(), message
        digest.update(message.model_dump_json(exclude_unset=True).encode("utf-8", "replace"))
    yield digest.digest(), None
