"""The engine's load, for routers and Prometheus."""

from dataclasses import dataclass
from typing import Self

from lead.engine.events import Ready
from lead.engine_client.sequences import Sequences


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The numbers of running and waiting requests, and of their tokens. n_ctx: the number of KV cells."""

    n_running: int
    n_waiting: int
    n_used_tokens: int
    n_waiting_tokens: int
    n_slots: int
    n_ctx: int

    @classmethod
    def of(cls, sequences: Sequences, ready: Ready) -> Self:
        """Return the present load of the engine. Caches of idle slots do not count, as they can be
        evicted.
        """
        running: list[int] = []
        waiting: list[int] = []
        for sequence in sequences:
            (waiting if sequence.is_waiting else running).append(sequence.n_tokens)
        return cls(len(running), len(waiting), sum(running), sum(waiting), ready.n_slots, ready.n_ctx)

    @property
    def n_free_slots(self) -> int:
        return max(0, self.n_slots - self.n_running)

    @property
    def kv_usage(self) -> float:
        """The share of the KV cache that running requests use; shared tokens count once per request."""
        return min(1.0, self.n_used_tokens / self.n_ctx)
