"""A first table of T(n), while there is nothing else to do."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lead.engine.speculation.step_cost import StepCost
from shared.llama.span import Span

_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
_REPEATS = 5
_MOST_SECONDS = 10.0
"""A model so slow that this is not enough learns the rest from its requests."""


class Target(Protocol):
    """What is timed (`shared.llama.model.Model`)."""

    def decode(self, spans: Sequence[Span]) -> Any:
        """One forward pass."""

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens of a slot."""


def calibrate(
    target: Target,
    cost: StepCost,
    interrupted: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Time steps of several widths in slot 0, which must be empty and is so again afterwards.

    The widths take turns, so that a busy moment of the machine does not fall on one of them alone. Ends early
    when `interrupted` says so.
    """
    began = clock()
    for width in _WIDTHS * _REPEATS:
        if interrupted() or clock() - began > _MOST_SECONDS:
            return
        start = clock()
        target.decode([Span(0, 0, [1] * width, width)])
        cost.learn(width, clock() - start)
        target.trim(0, 0)
