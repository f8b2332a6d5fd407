"""A path of draft tokens: the main path of a sequence, or a side branch of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shared.sampling.coupled_choice import RankedToken
from shared.sampling.sampler import Sampler
from shared.slot_cache import SlotCache


@dataclass(frozen=True, slots=True)
class DraftedToken:
    """A draft token, the draft model's confidence in it, and the runners-up, likeliest first."""

    token: int
    confidence: float
    runners_up: tuple[RankedToken, ...] = ()


@dataclass(slots=True)
class DraftPath:
    """Draft tokens at positions start, start + 1, …; `cache` and `sampler` also cover everything before them.

    The last token has been sampled but not decoded; `cache` holds those of the others that were decoded. But
    while a grammar is being followed, everything has been decoded, and `unranked` are the logits after it.
    """

    cache: SlotCache
    sampler: Sampler
    start: int
    drafted: list[DraftedToken] = field(default_factory=list)
    unranked: NDArray[np.float32] | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.drafted)

    @property
    def tokens(self) -> list[int]:
        return [each.token for each in self.drafted]

    @property
    def confidence(self) -> float:
        """The product of the tokens' confidences: the chance that all are right if their prefix is."""
        return math.prod(each.confidence for each in self.drafted)

    def n_matching(self, tokens: Sequence[int]) -> int:
        """The length of the common prefix of this path and `tokens`."""
        n = 0
        for each, token in zip(self.drafted, tokens, strict=False):
            if each.token != token:
                break
            n += 1
        return n

    def drop_before(self, start: int) -> None:
        """Remove the tokens at positions before `start`: they are committed now."""
        del self.drafted[: start - self.start]
        self.start = start

    def append(self, choices: Sequence[RankedToken]) -> None:
        """Add the first of `choices`; the others, in descending order, are its runners-up."""
        self.unranked = None
        first, *runners_up = choices
        self.drafted.append(DraftedToken(first.token, first.confidence, tuple(runners_up)))
        self.sampler.accept(first.token)
