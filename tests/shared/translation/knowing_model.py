"""A draft model that knows how a text goes on: all lost drafts are lost by the code around it."""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.cache_edits import SlotMemory, Snapshot
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.span import Span
from shared.translation.byte_vocabulary import ByteVocabulary


class KnowingModel(SlotMemory):
    """Expects that `text` goes on as it does, in its own tokens. The memory is a list for each slot."""

    def __init__(
        self,
        vocabulary: ByteVocabulary,
        text: bytes,
        *,
        n_slots: int = 4,
        n_ctx: int = 100_000,
        n_batch: int = 512,
        traits: MemoryTraits = PLAIN,
        doubt: float = 1e-9,
    ) -> None:
        """doubt: the probability of all other tokens together."""
        self.n_slots, self.n_ctx_slot, self.n_batch, self.traits = n_slots, n_ctx, n_batch, traits
        self.n_decodes = 0
        self.vocabulary = vocabulary
        self.memory: list[list[int]] = [[] for _ in range(n_slots)]
        self._kept: dict[int, list[int]] = {}
        self._text = text
        self._other = np.log(doubt / len(vocabulary))
        self._expected: dict[int, int] = {}
        offset = 0
        for token in vocabulary.encode(text):
            self._expected[offset] = token
            offset += len(vocabulary.pieces[token])
        self._boundaries = [*self._expected, len(text)]

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """Logits for each span, shape (n_logits, n_vocab)."""
        assert sum(len(span.tokens) for span in spans) <= self.n_batch
        self.n_decodes += 1
        return [self._decode_tokens(span) for span in spans]

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first tokens of a slot."""
        del self.memory[slot][n_keep:]

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Give an empty slot the first tokens of another slot."""
        assert not self.memory[slot]
        self.memory[slot] = self.memory[source_slot][:n_keep]

    def store(self, slot: int, snapshot: Snapshot) -> None:
        """Keep the memory of a slot under the snapshot's key."""
        self._kept[snapshot.key] = list(self.memory[slot])

    def restore(self, slot: int, snapshot: Snapshot, n_keep: int) -> None:
        """Give a slot the memory that was kept."""
        self.memory[slot] = self._kept[snapshot.key][:n_keep]

    def data(self, slot: int) -> bytes:
        """The text in the memory."""
        return b"".join(self.vocabulary.pieces[token] for token in self.memory[slot])

    def _decode_tokens(self, span: Span) -> NDArray[np.float32]:
        memory = self.memory[span.slot]
        assert len(memory) == span.start, f"{len(memory)} tokens in slot {span.slot}, not {span.start}"
        assert span.start + len(span.tokens) <= self.n_ctx_slot
        memory += span.tokens
        rows = np.full((span.n_logits, len(self.vocabulary)), self._other, np.float32)
        end = len(self.data(span.slot))
        for row, token in zip(rows[::-1], reversed(span.tokens), strict=False):
            if end < len(self._text):
                row[self._token_at(end)] = 0.0
            end -= len(self.vocabulary.pieces[token])
        return rows

    def _token_at(self, offset: int) -> int:
        if offset in self._expected:
            return self._expected[offset]
        end = self._boundaries[bisect_right(self._boundaries, offset)]
        return self.vocabulary.encode(self._text[offset:end])[0]
