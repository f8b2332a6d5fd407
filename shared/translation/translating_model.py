"""A draft model with another vocabulary, as a model over the lead's tokens.

Positions, trims and copies count target tokens. The memory of this model can be cut back to any length: if
the draft model's memory cannot, the missing tokens are decoded again.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shared.cache_edits import SlotMemory, apply_edits
from shared.errors import KvCacheFullError
from shared.llama.memory_traits import PLAIN
from shared.llama.model import Model
from shared.llama.span import Span
from shared.translation.byte_vocabulary import ReadToken
from shared.translation.projection import Projection
from shared.translation.translated_slot import Feed, TranslatedSlot


class TranslatingModel(SlotMemory):
    """Decodes target tokens with a draft model of another vocabulary."""

    def __init__(self, model: Model, projection: Projection, prefix: Sequence[int] = ()) -> None:
        """prefix: the draft model's tokens before every text (BOS)."""
        self._model = model
        self.traits = PLAIN
        self.n_batch = model.n_batch
        self.n_vocab = len(projection.target)
        self.pieces = projection.target.pieces
        """The bytes of each target token."""
        self._slots = [
            TranslatedSlot(index, model.traits, projection, prefix) for index in range(model.n_slots)
        ]

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """Return logits over target tokens after each span, shape (n_logits, n_vocab) with n_logits at most
        1.

        No pass is needed if a look-ahead has decoded the new tokens, or if they begin a draft token that the
        last logits expect. After a KvCacheFullError the slots are unchanged.
        """
        for span in spans:
            slot = self._slots[span.slot]
            assert len(slot) == span.start, f"slot {span.slot} holds {len(slot)} tokens, not {span.start}"
            slot.append(span.tokens)
        n_room = self._model.n_ctx_slot
        try:
            self._feed(
                {
                    span.slot: self._slots[span.slot].plan(unfinished=not span.n_logits, n_room=n_room)
                    for span in spans
                }
            )
        except KvCacheFullError:
            for span in spans:
                self._slots[span.slot].keep(span.start)
            raise
        empty = np.empty((0, self.n_vocab), np.float32)
        return [
            self._slots[span.slot].lattice().logits()[np.newaxis] if span.n_logits else empty
            for span in spans
        ]

    def look_ahead(self, choices: Mapping[int, int]) -> dict[int, NDArray[np.float32]]:
        """Return corrected logits by slot, for slots of `choices` (slot → token) that need a correction.

        A chosen token may be the beginning of a longer token of the lead's. The draft model then decodes
        further, and if it expects the rest, the longer token is preferred.
        """
        n_room = self._model.n_ctx_slot
        feeds = {index: self._slots[index].look_ahead(token, n_room) for index, token in choices.items()}
        feeds = {index: feed for index, feed in feeds.items() if feed.tokens}
        try:
            self._feed(feeds)
        except KvCacheFullError:
            return {}
        return {index: self._slots[index].lattice().logits() for index in feeds}

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` target tokens. Decoded tokens are removed only when other tokens follow."""
        self._slots[slot].keep(n_keep)
        if not n_keep:  # the cells are needed for other texts
            self._slots[slot].decoded.restart(0)
            self._apply(self._slots[slot])

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Give an empty slot the first `n_keep` target tokens of another."""
        source, target = self._slots[source_slot], self._slots[slot]
        assert not len(target), f"slot {slot} is not empty"
        self.trim(slot, 0)
        n_decoded = target.fork(source, n_keep)
        saved = source.decoded.cache.saved
        if self._model.traits.can_trim:
            if n_decoded:
                self._model.copy(source_slot, slot, n_decoded)
        else:
            n_decoded = max((n for n in saved if n <= n_decoded), default=0)
            if n_decoded:
                self._model.restore(slot, saved[n_decoded], n_decoded)
        target.decoded.copy_from(source.decoded, n_decoded)

    def check_integrity(self) -> None:
        for slot in self._slots:
            slot.check_integrity()

    def _feed(self, feeds: Mapping[int, Feed]) -> None:
        """Decode the tokens of each slot's feed, in batches."""
        waiting = {index: (self._slots[index].cut(feed), feed.n_logits) for index, feed in feeds.items()}
        while waiting := {index: each for index, each in waiting.items() if each[0]}:
            for slot in self._slots:
                self._apply(slot)
            spans = self._batch(waiting)
            for span, rows in zip(spans, self._model.decode(spans), strict=True):
                slot = self._slots[span.slot]
                tokens, n_logits = waiting[span.slot]
                n_decoded = len(span.tokens)
                slot.add(tokens[:n_decoded], rows)
                waiting[span.slot] = tokens[n_decoded:], n_logits
                if self._model.traits.n_step_checkpoints:
                    apply_edits(slot.decoded.cache.save(), self._model)

    def _batch(self, waiting: Mapping[int, tuple[list[ReadToken], int]]) -> list[Span]:
        """Return the next tokens of as many slots as a batch can hold; slots with the fewest tokens come
        first.
        """
        spans = []
        n_room = self.n_batch
        for index, (tokens, n_logits) in sorted(waiting.items(), key=lambda each: len(each[1][0])):
            part = [token for token, _ in tokens[:n_room]]
            n_later = len(tokens) - len(part)
            if part:
                spans.append(Span(index, len(self._slots[index].decoded), part, max(0, n_logits - n_later)))
            n_room -= len(part)
        return spans

    def _apply(self, slot: TranslatedSlot) -> None:
        apply_edits(slot.decoded.cache.take_edits(), self._model)
