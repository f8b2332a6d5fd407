"""Forms batches of texts, and tracks their fate. Knows neither processes nor a clock."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lead.embeddings.encoder_messages import MAX_SEQUENCES, EncodedText, Together
from lead.tokenizer.fair_queue import Client, FairQueue

T = TypeVar("T")

MAX_WAITING = 1 << 16
"""The maximum number of texts that wait."""
_MAX_WAITING_BYTES = 64 << 20
_MAX_TRIES = 3


@dataclass(eq=False, slots=True)
class WaitingText(Generic[T]):
    """A text in the queue.

    waiter: receives its vector. n_tries: the number of its batches during which the process died.
    """

    client: Client
    text: EncodedText
    waiter: T
    n_tries: int = 0

    @property
    def n_tokens(self) -> int:
        return len(self.text.tokens)


@dataclass(slots=True)
class EncoderQueue(Generic[T]):
    """A queue of texts, fair between clients, until they are in a batch; batches are answered in order."""

    together: Together = field(default_factory=Together)
    _waiting: FairQueue[WaitingText[T]] = field(
        default_factory=lambda: FairQueue(MAX_WAITING, _MAX_WAITING_BYTES)
    )
    _next: deque[WaitingText[T]] = field(default_factory=deque)
    """The texts for the next batch: a text that did not fit into the last one, or texts that are tried again.
    """
    _running: deque[list[WaitingText[T]]] = field(default_factory=deque)

    def __len__(self) -> int:
        """Return the number of texts without a vector."""
        return len(self._waiting) + len(self._next) + sum(map(len, self._running))

    @property
    def n_running(self) -> int:
        """The number of batches in progress."""
        return len(self._running)

    def push(self, text: WaitingText[T]) -> list[WaitingText[T]]:
        """Add a text; returns texts that are dropped to make room (see `FairQueue.push`)."""
        return self._waiting.push(text.client, text, 4 * text.n_tokens)

    def drop(self, text: WaitingText[T]) -> None:
        """Remove a text that is no longer wanted."""
        self._waiting.remove(text.client, text)
        if text in self._next:
            self._next.remove(text)

    def take_batch(self) -> list[WaitingText[T]]:
        """Return the texts to compute next; empty if there are none, or enough are in progress.

        While a batch is being computed, a second batch is started only if the second is full. A text with
        whose batch the process has died before is alone in its next batch.
        """
        batch: list[WaitingText[T]] = []
        n_tokens = 0
        while len(self._running) < 2 and len(batch) < MAX_SEQUENCES and (text := self._pop()):  # noqa: PLR2004 - see above
            if batch and not self._may_join(text, batch[0], n_tokens):
                self._next.appendleft(text)
                break
            batch.append(text)
            n_tokens += text.n_tokens
        else:
            if self._running and len(batch) < MAX_SEQUENCES:  # not whole
                self._next.extendleft(reversed(batch))
                return []
        if batch:
            self._running.append(batch)
        return batch

    def _may_join(self, text: WaitingText[T], first: WaitingText[T], n_tokens: int) -> bool:
        """Return whether a text may join a batch that begins with `first` and has `n_tokens` tokens."""
        alone = any(each.n_tries or each.n_tokens >= self.together.n_alone for each in (text, first))
        return not alone and n_tokens + text.n_tokens <= self.together.n_tokens

    def answer(self) -> list[WaitingText[T]]:
        """Return the texts of the oldest batch, whose vectors have arrived."""
        return self._running.popleft()

    def lost(self) -> list[WaitingText[T]]:
        """Handle the death of the process: returns the texts that are not tried again."""
        tried = [text for batch in self._running for text in batch]
        first = len(self._running[0]) if self._running else 0
        self._running.clear()
        for text in tried[:first]:
            text.n_tries += 1
        self._next.extendleft(text for text in reversed(tried) if text.n_tries < _MAX_TRIES)
        return [text for text in tried if text.n_tries >= _MAX_TRIES]

    def clear(self) -> Sequence[WaitingText[T]]:
        """Remove and return all texts: nothing will compute them."""
        found = [*(text for batch in self._running for text in batch), *self._next]
        while self._waiting:
            found.append(self._waiting.pop())
        self._running.clear()
        self._next.clear()
        return found

    def _pop(self) -> WaitingText[T] | None:
        if self._next:
            return self._next.popleft()
        return self._waiting.pop() if self._waiting else None
