"""The part of a batch that belongs to one sequence. Imports no native library: schedulers use it."""

from collections.abc import Sequence
from dataclasses import dataclass


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


def padding(spans: Sequence[Span], n_batch: int, n_ctx_slot: int, *, prompts: bool) -> list[int]:
    """Number of padding tokens to append to each span, where llama.cpp decodes equal lengths together.

    It splits a batch into ubatches in which each slot has the same number of tokens, and every ubatch reads
    all weights. So each span is padded to the length of the longest draft, those of prompts only with
    `prompts`. Longer spans are prompts, whose remainder is worth a ubatch of its own. No padding is added
    where batch or slot are full.
    """
    lengths = [len(span.tokens) for span in spans]
    longest = max((len(span.tokens) for span in spans if span.n_logits == len(span.tokens)), default=0)
    added = [
        longest - length
        if length < longest
        and span.start + longest <= n_ctx_slot
        and (prompts or span.n_logits == len(span.tokens))
        else 0
        for span, length in zip(spans, lengths, strict=True)
    ]
    return added if sum(lengths) + sum(added) <= n_batch else [0] * len(spans)


def n_passes(spans: Sequence[Span], n_padding: Sequence[int], *, equal_lengths: bool) -> int:
    """In how many passes over the weights llama.cpp decodes `spans`, if they fit into one ubatch."""
    lengths = {len(span.tokens) + n_pad for span, n_pad in zip(spans, n_padding, strict=True)}
    return len(lengths) if equal_lengths else 1
