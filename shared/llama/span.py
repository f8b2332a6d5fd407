"""The part of a batch that belongs to one sequence. Imports no native library: schedulers use it."""

from collections.abc import Sequence
from dataclasses import dataclass

TILE = 64
"""Tokens of a batch that llama.cpp's flash attention computes together on a CPU."""
_MIN_CELLS = 1024
"""Of the sequences beside a prompt: with fewer, a tile costs no more than a further pass over the weights.

Measured: both cost the same at 450 to 800 (docs/performance.md)."""


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one sequence at positions start, start + 1, …; logits are computed for the last `n_logits`.

    slot: the sequence id in llama.cpp, 0 ≤ slot < n_slots. is_prompt: they are tokens of a prompt; it only
    matters for `shared.llama.width_policy`.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    n_logits: int
    is_prompt: bool = False

    @property
    def is_verified(self) -> bool:
        """Whether it is what a sequence generates: logits are wanted of all its tokens."""
        return self.n_logits == len(self.tokens)


def wants_two_passes(spans: Sequence[Span]) -> bool:
    """Whether prompts are better decoded apart from the rest, with flash attention on a CPU in one pool.

    A tile of tokens is compared with the cells of every sequence that it has a token of: beside a prompt, a
    generated token costs as much attention as a tile of them.
    """
    n_prompt = sum(len(span.tokens) for span in spans if not span.is_verified)
    n_cells = sum(span.start for span in spans if span.is_verified)
    return n_prompt > 0 and n_cells >= _MIN_CELLS and sum(len(span.tokens) for span in spans) >= TILE


def padding(spans: Sequence[Span], n_batch: int, n_ctx_slot: int, *, prompts: bool) -> list[int]:
    """Number of padding tokens to append to each span, where llama.cpp decodes equal lengths together.

    It splits a batch into ubatches in which each slot has the same number of tokens, and every ubatch reads
    all weights. So each span is padded to the length of the longest draft, those of prompts only with
    `prompts`. Longer spans are prompts, whose remainder is worth a ubatch of its own. No padding is added
    where batch or slot are full.
    """
    lengths = [len(span.tokens) for span in spans]
    longest = max((len(span.tokens) for span in spans if span.is_verified), default=0)
    added = [
        longest - length
        if length < longest and span.start + longest <= n_ctx_slot and (prompts or span.is_verified)
        else 0
        for span, length in zip(spans, lengths, strict=True)
    ]
    return added if sum(lengths) + sum(added) <= n_batch else [0] * len(spans)


def n_passes(spans: Sequence[Span], n_padding: Sequence[int], *, equal_lengths: bool) -> int:
    """In how many passes over the weights llama.cpp decodes `spans`, if they fit into one ubatch."""
    lengths = {len(span.tokens) + n_pad for span, n_pad in zip(spans, n_padding, strict=True)}
    return len(lengths) if equal_lengths else 1
