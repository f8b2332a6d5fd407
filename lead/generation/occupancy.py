"""How much of the engine is in use: what routers and dashboards ask."""

from collections.abc import Iterable
from dataclasses import dataclass

from lead.engine.events import Ready
from lead.generation.sequences import LiveSequence, Status


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Requests that run or wait for a slot, and their tokens so far; `n_ctx` is the number of KV cells."""

    n_running: int
    n_waiting: int
    n_used_tokens: int
    n_waiting_tokens: int
    n_slots: int
    n_ctx: int

    @classmethod
    def of(cls, sequences: Iterable[LiveSequence], ready: Ready) -> "Occupancy":
        """What idle slots still hold does not count: it makes room for whoever needs it."""
        running: list[int] = []
        waiting: list[int] = []
        for sequence in sequences:
            (waiting if sequence.status is Status.QUEUED else running).append(len(sequence.tokens))
        return cls(len(running), len(waiting), sum(running), sum(waiting), ready.n_slots, ready.n_ctx)

    @property
    def n_free_slots(self) -> int:
        """Requests that would start at once."""
        return max(0, self.n_slots - self.n_running)

    @property
    def kv_usage(self) -> float:
        """The share of the KV cache that running requests fill; tokens that they share count for each."""
        return min(1.0, self.n_used_tokens / self.n_ctx)
