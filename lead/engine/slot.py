"""A slot: one sequence's place in the KV cache, and what is left there when the sequence has gone."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.sampling import Sampler


@dataclass(slots=True)
class EngineSequence:
    """A completion in progress, as the engine sees it. `tokens` only ever grows."""

    id: str
    tokens: list[int]
    sampler: Sampler
    max_tokens: int | None
    n_prompt: int = field(init=False)
    number: int | None = None  # sequences are numbered as they first get a slot

    def __post_init__(self) -> None:
        self.n_prompt = len(self.tokens)

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.n_prompt

    def n_left(self, n_ctx: int) -> int:
        """How many more tokens it may get."""
        room = n_ctx - len(self.tokens)
        return room if self.max_tokens is None else min(room, self.max_tokens - self.n_generated)


@dataclass(slots=True)
class Slot:
    """`cached` are the tokens whose keys and values are valid; the cache may hold more behind them.

        tokens of the sequence   [0 ........................ len(tokens))
        valid in the cache       [0 .......... len(cached))
        physically in the cache  [0 ................ n_physical)   what is behind `cached` is to be trimmed
        to decode next                        [len(cached) .. len(tokens))

    When the sequence ends, `cached` stays for a later request with the same beginning.
    """

    index: int
    cached: list[int] = field(default_factory=list)
    n_physical: int = 0
    sequence: EngineSequence | None = None
    last_used: int = 0

    def take(self, sequence: EngineSequence, n_keep: int) -> None:
        """Give the slot to `sequence`, whose first `n_keep` tokens are in its cache already."""
        self.sequence = sequence
        self.keep(n_keep)

    def keep(self, n_keep: int) -> None:
        """Only the first `n_keep` tokens of the cache stay valid."""
        del self.cached[n_keep:]

    def add(self, tokens: Sequence[int]) -> None:
        """`tokens` were decoded behind the valid ones."""
        self.cached.extend(tokens)
        self.n_physical = len(self.cached)

    def shared_with(self, tokens: Sequence[int]) -> int:
        """The length of the common prefix of the cache and `tokens`."""
        n = min(len(self.cached), len(tokens))
        for i in range(n):
            if self.cached[i] != tokens[i]:
                return i
        return n
