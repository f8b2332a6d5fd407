"""Memory of llama.cpp alone, in this process: a model decodes random drafts and takes most of them back.

llama.cpp reserves its buffers for the largest batch over the fullest cache, but the system gives it memory
only where it writes. So a process grows until it has seen the worst. `touch_all` shows that first.
"""

import random
from collections.abc import Sequence
from typing import Any

import psutil

from shared.llama.model import Model
from shared.llama.span import Span

_MEGABYTE = 1e6
_N_PROMPT, _DRAFTS = 20, (0, 0, 0, 1, 2, 4, 8, 16)
"""Tokens of a new text; further tokens of one step, as adaptive speculation has them."""


class RandomTraffic:
    """Sequences in all slots of a model. `n_kept`: tokens that were not taken back."""

    def __init__(self, model: Model, rng: random.Random) -> None:
        self._model = model
        self._rng = rng
        self._lengths = [0] * model.n_slots
        self._n_ctx = model.n_ctx // model.n_slots
        self.n_kept = 0

    def touch_all(self) -> None:
        """Fill the cache, with logits for every token, then decode the largest batch over it; empty it."""
        n_last = self._model.n_batch // self._model.n_slots
        n_fill = self._n_ctx - n_last
        for slot in range(self._model.n_slots):
            for start in range(0, n_fill, self._model.n_batch):
                self._model.decode([self._span(slot, start, min(self._model.n_batch, n_fill - start))])
        self._model.decode([self._span(slot, n_fill, n_last) for slot in range(self._model.n_slots)])
        for slot in range(self._model.n_slots):
            self._model.trim(slot, 0)

    def step(self) -> None:
        """Decode a draft in each slot and keep a part of it; a full slot begins a new text."""
        spans = [self._next(slot) for slot in range(self._model.n_slots)]
        self._model.decode(spans)
        for span in spans:
            n_kept = self._rng.randint(1, len(span.tokens))
            self._lengths[span.slot] = span.start + n_kept
            self.n_kept += n_kept
            if n_kept < len(span.tokens):
                self._model.trim(span.slot, span.start + n_kept)

    def _next(self, slot: int) -> Span:
        n_tokens = 1 + self._rng.choice(_DRAFTS)
        if self._lengths[slot] + n_tokens > self._n_ctx:
            self._model.trim(slot, 0)
            self._lengths[slot] = 0
        return self._span(slot, self._lengths[slot], n_tokens if self._lengths[slot] else _N_PROMPT)

    def _span(self, slot: int, start: int, n_tokens: int) -> Span:
        tokens = [self._rng.randrange(self._model.n_vocab) for _ in range(n_tokens)]
        return Span(slot, start, tokens, n_tokens)


def grow(traffic: RandomTraffic, n_tokens: int, every: int, *, touched: bool) -> Sequence[dict[str, Any]]:
    """A row after each `every` tokens, with the resident memory of this process in MB."""
    if touched:
        traffic.touch_all()
    rows = []
    for goal in range(every, n_tokens + 1, every):
        while traffic.n_kept < goal:
            traffic.step()
        rows.append({"tokens": traffic.n_kept, "model": psutil.Process().memory_info().rss / _MEGABYTE})
    return rows
