"""What one sequence contributes to a decode. Stands alone, so that schedulers need no native library."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one sequence at positions start, start + 1, …; logits are wanted for the last `n_logits`.

    `slot` is the sequence's place in the KV cache, 0 ≤ slot < n_slots.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    n_logits: int


def fillers(spans: Sequence[Span], n_batch: int, n_ctx_slot: int) -> list[int]:
    """How many tokens to add behind each span, to be thrown away, for slots with cells of their own.

    llama.cpp decodes such slots together only as far as they have equally many tokens, and the rest in
    further passes, each of which reads all weights. So all get as many as the longest draft; what is longer
    is a prompt, whose rest is worth a pass of its own. None are added where batch or slot have no room.
    """
    lengths = [len(span.tokens) for span in spans]
    longest = max((len(span.tokens) for span in spans if span.n_logits == len(span.tokens)), default=0)
    added = [
        longest - length if length < longest and span.start + longest <= n_ctx_slot else 0
        for span, length in zip(spans, lengths, strict=True)
    ]
    return added if sum(lengths) + sum(added) <= n_batch else [0] * len(spans)
