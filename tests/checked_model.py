"""A model that now and then compares its logits with a fresh evaluation of the same tokens."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lead.engine.target import Target
from shared.cache_edits import Snapshot
from shared.image_span import ImageSpan
from shared.llama.model import Model
from shared.llama.span import Span
from shared.slot_cache import StoredText
from tests.random_images import RandomImages


@dataclass(slots=True)
class Comparison:
    """`differences`: for each row compared, the largest absolute difference of a logit."""

    differences: list[float] = field(default_factory=list)
    spread: float = 0.0  # standard deviation of a row's logits

    @property
    def worst(self) -> float:
        """The largest difference of all."""
        return max(self.differences, default=0.0)

    def n_wrong(self, bound: float) -> int:
        """The number of rows that differ by more than `bound`, or are not numbers."""
        return sum(not difference <= bound for difference in self.differences)


class CheckedModel(Target):
    """Decodes, trims and copies as `model` does, and remembers which tokens each slot ought to hold.

    `fresh` has one slot. It computes each checked row again from an empty cache.
    """

    def __init__(
        self, model: Model, fresh: Model, rng: random.Random, images: RandomImages | None = None
    ) -> None:
        self._images = images or RandomImages(rng)
        self.n_batch = model.n_batch
        self.n_vocab = model.n_vocab
        self.traits = model.traits
        self.comparison = Comparison()
        self._model = model
        self._fresh = fresh
        self._rng = rng
        self._texts: list[list[int]] = [[] for _ in range(model.n_slots)]
        self._n_prompt = [0] * model.n_slots  # tokens that were decoded as a prompt
        self._ahead: set[int] = set()  # slots with the state of a text that goes on
        self._kept: dict[int, tuple[list[int], int]] = {}  # on the device: texts and their `_n_prompt`
        self._stored: dict[int, tuple[list[int], int]] = {}
        self.n_loaded = 0  # texts
        self.n_read = 0  # texts, from disk

    @property
    def n_cells(self) -> int:
        """The number of tokens in all slots. A shared token counts once for each slot."""
        return sum(len(text) for text in self._texts)

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """See `Model.decode`. One row of each step is compared."""
        assert self._ahead.isdisjoint(span.slot for span in spans), "a state is not that of its text"
        rows = self._model.decode(spans)
        for span in spans:
            self._texts[span.slot] += span.tokens
            if span.is_prompt:
                self._n_prompt[span.slot] = len(self._texts[span.slot])
        at = self._rng.randrange(len(spans))
        if n_rows := len(rows[at]):
            self._compare(spans[at], rows[at], self._rng.randrange(n_rows))
        return rows

    def trim(self, slot: int, n_keep: int) -> None:
        self._model.trim(slot, n_keep)
        if n_keep == 0:
            self._ahead.discard(slot)
        del self._texts[slot][n_keep:]

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        self._model.copy(source_slot, slot, n_keep)
        if not self.traits.can_trim and n_keep < len(self._texts[source_slot]):
            self._ahead.add(slot)
        self._texts[slot] = self._texts[source_slot][:n_keep]
        self._n_prompt[slot] = self._n_prompt[source_slot]

    def store(self, slot: int, snapshot: Snapshot) -> None:
        if snapshot.kind == "text":
            assert slot not in self._ahead, "a text is stored with another state"
        self._model.store(slot, snapshot)
        assert len(self._texts[slot]) >= snapshot.end, f"{snapshot} is stored of a shorter text"
        kept = self._kept if snapshot.kind == "device" else self._stored
        kept[snapshot.key] = self._texts[slot][: snapshot.end], self._n_prompt[slot]

    def restore(self, slot: int, snapshot: Snapshot, n_keep: int) -> None:
        text, n_prompt = (self._kept if snapshot.kind == "device" else self._stored)[snapshot.key]
        held = self._texts[slot]
        if snapshot.kind == "state":
            assert held[: len(text)] == text, "a state is loaded into a slot with another text"
        elif snapshot.kind == "text":
            assert held == text[: snapshot.start], "a text is loaded behind another"
            self._n_prompt[slot] = n_prompt
            self.n_loaded += 1
        self._model.restore(slot, snapshot, n_keep)
        self._ahead.discard(slot)
        self._texts[slot] = text[:n_keep]

    def lend(self, key: int) -> memoryview | None:
        return self._model.lend(key)

    def take_back(self, key: int) -> None:
        self._model.take_back(key)

    def reserve(self, key: int, size: int) -> memoryview:
        return self._model.reserve(key, size)

    def has_read(self, text: StoredText) -> None:
        """Note that `text` was read from disk."""
        self.n_read += 1
        for snapshot in text.snapshots:
            self._stored[snapshot.key] = text.tokens[: snapshot.end], text.n_prefill

    def forget(self, key: int) -> None:
        self._model.forget(key)
        del self._stored[key]

    def clear(self) -> None:
        self._model.clear()
        for text in self._texts:
            text.clear()
        self._stored.clear()
        self._ahead.clear()

    def _compare(self, span: Span, rows: NDArray[np.float32], row: int) -> None:
        n_after = len(rows) - 1 - row
        text = self._texts[span.slot]
        expected = self._evaluate(text[: len(text) - n_after], self._n_prompt[span.slot])
        self.comparison.differences.append(float(np.abs(rows[row] - expected).max()))
        self.comparison.spread = float(expected.std())

    def _evaluate(self, text: Sequence[int], n_prompt: int) -> NDArray[np.float32]:
        """The logits after `text`, read into an empty cache, the first `n_prompt` tokens as a prompt."""
        self._fresh.trim(0, 0)
        ends = [n for n in range(self._fresh.n_batch, len(text), self._fresh.n_batch) if n != n_prompt]
        ends = sorted([*ends, *([n_prompt] if 0 < n_prompt < len(text) else []), len(text)])
        images = {image.start: image for image in self._images.spans(text)}
        for start, end in pairwise([0, *_beside(ends, images.values())]):
            image = images.get(start)
            n_logits = 0 if image else 1
            span = Span(0, start, text[start:end], n_logits, is_prompt=start < n_prompt, image=image)
            (rows,) = self._fresh.decode([span])
        logits: NDArray[np.float32] = rows[0]
        return logits


def _beside(ends: Iterable[int], images: Iterable[ImageSpan]) -> list[int]:
    """Return the `ends` that are not inside an image, and the beginnings and ends of all images."""
    spans = [(image.start, image.end) for image in images]
    outside = {end for end in ends if not any(start < end < after for start, after in spans)}
    return sorted(outside.union(*spans) - {0})
