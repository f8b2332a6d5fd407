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
