"""A line of draft tokens: the main line of a sequence, or a branch beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.sampling.sampler import Choice, Sampler
from shared.slot_cache import SlotCache


@dataclass(frozen=True, slots=True)
class Drafted:
    """A draft token, how sure the draft model is of it, and what it would choose next after it."""

    token: int
    confidence: float
    runners_up: tuple[Choice, ...] = ()


@dataclass(slots=True)
class Line:
    """Draft tokens at positions start, start + 1, …; `cache` and `sampler` know all that is before them, too.

    The last token is drafted and not yet decoded; of the others `cache` holds as many as were decoded.
    """

    cache: SlotCache
    sampler: Sampler
    start: int
    drafted: list[Drafted] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.drafted)

    @property
    def tokens(self) -> list[int]:
        return [each.token for each in self.drafted]

    @property
    def confidence(self) -> float:
        """How likely all of its tokens are right, if what is before them is; 1 without tokens."""
        return math.prod(each.confidence for each in self.drafted)

    def agreeing(self, tokens: Sequence[int]) -> int:
        """How many of its first tokens are those of `tokens`."""
        n = 0
        for each, token in zip(self.drafted, tokens, strict=False):
            if each.token != token:
                break
            n += 1
        return n

    def cut(self, start: int) -> None:
        """Its tokens before `start` are no draft any more."""
        del self.drafted[: start - self.start]
        self.start = start

    def append(self, choices: Sequence[Choice]) -> None:
        """The next token is the first of `choices`, the likeliest first."""
        first, *runners_up = choices
        self.drafted.append(Drafted(first.token, first.confidence, tuple(runners_up)))
        self.sampler.accept(first.token)
