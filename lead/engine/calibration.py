"""A first table of T(n), measured before the first request."""

import random
import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat

from lead.engine.speculation.step_cost import StepCost
from lead.engine.target import Target
from shared.llama.span import Span

_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
_REPEATS = 5
_MAX_SECONDS = 10.0
"""Time limit; for a slower model the rest is learned from requests."""


def calibrate(
    target: Target,
    cost: StepCost,
    n_vocab: int,
    interrupted: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    *,
    widths: Sequence[int] = _WIDTHS,
    n_repeats: int = _REPEATS,
    max_seconds: float = _MAX_SECONDS,
) -> None:
    """Time steps of several widths in slot 0, which must be empty and is left empty.

    The widths take turns, so that a busy moment of the machine does not affect one of them alone. Ends early
    when `interrupted` returns True.
    """
    began = clock()
    for width in chain.from_iterable(repeat(widths, n_repeats)):
        if interrupted() or clock() - began > max_seconds:
            return
        tokens, start = varied_tokens(n_vocab, width), clock()
        target.decode([Span(0, 0, tokens, width)])
        cost.learn(width, clock() - start)
        target.trim(0, 0)


def varied_tokens(n_vocab: int, n: int) -> list[int]:
    """As different as those of a text: a mixture of experts would send equal ones to the same experts."""
    return random.Random(0).choices(range(n_vocab), k=n)  # noqa: S311 - the same at each start
