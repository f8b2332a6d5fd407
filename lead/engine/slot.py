"""A slot: one sequence's place in the KV cache, and what is left there when the sequence has ended."""

from dataclasses import dataclass

from lead.engine.sequence import EngineSequence
from shared.slot_cache import SlotCache


@dataclass(slots=True)
class Slot:
    """A place for one sequence. Its cache outlives it: a later request may have the same prefix.

    tokens of the sequence   [0 ........................ len(tokens))
    valid in the cache       [0 .......... len(cache))
    to decode next                         [len(cache) .. len(tokens))

    Written by `SlotManager`.
    """

    cache: SlotCache
    sequence: EngineSequence | None = None
    last_used: int = 0

    @property
    def index(self) -> int:
        return self.cache.index

    @property
    def n_to_decode(self) -> int:
        """Committed tokens not yet in the cache: one while generating, more while a prompt is processed."""
        return len(self.sequence.tokens) - len(self.cache) if self.sequence else 0
