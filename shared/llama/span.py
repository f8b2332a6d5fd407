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


def prompts_first(spans: Sequence[Span]) -> list[list[Span]]:
    """Prompts, then the rest; without empty parts."""
    parts = [span for span in spans if not span.is_verified], [span for span in spans if span.is_verified]
    return [part for part in parts if part]


def padding(spans: Sequence[Span], n_batch: int, n_ctx_slot: int) -> list[int]:
    """Number of padding tokens to append to each span, where llama.cpp decodes equal lengths together.

    It splits a batch into ubatches in which each slot has the same number of tokens, and every ubatch reads
    all weights. So each span is padded to the length of the longest draft. Longer spans are prompts, whose
    remainder is worth a ubatch of its own. No padding is added where batch or slot are full.
    """
    lengths = [len(span.tokens) for span in spans]
    longest = max((len(span.tokens) for span in spans if span.is_verified), default=0)
    added = [
        longest - length if length < longest and span.start + longest <= n_ctx_slot else 0
        for span, length in zip(spans, lengths, strict=True)
    ]
    return added if sum(lengths) + sum(added) <= n_batch else [0] * len(spans)


def slots_in_last_pass(
    spans: Sequence[Span], n_batch: int, n_ctx_slot: int, *, in_order: bool
) -> frozenset[int]:
    """The slots of which recurrent states can be rolled back after `spans` were decoded, `prompts_first`.

    A pass moves the states of other sequences (`llama_memory_recurrent::find_slot`), but not those after
    earlier tokens. in_order: llama.cpp decodes only adjacent slots together.
    """
    last = prompts_first(spans)[-1]
    slots = {span.slot for span in last}
    n_padding = padding(last, n_batch, n_ctx_slot)
    is_one_pass = n_passes(last, n_padding, equal_lengths=True) == 1
    if in_order and max(slots) - min(slots) >= len(slots):
        is_one_pass = False
    return frozenset(slots if is_one_pass else ())


def n_passes(spans: Sequence[Span], n_padding: Sequence[int], *, equal_lengths: bool) -> int:
    """In how many passes over the weights llama.cpp decodes `spans`, if they fit into one ubatch."""
    lengths = {len(span.tokens) + n_pad for span, n_pad in zip(spans, n_padding, strict=True)}
    return len(lengths) if equal_lengths else 1
