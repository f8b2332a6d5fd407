"""A table of T(n), measured before the first request and while there is none."""

import math
import random
import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat

from lead.engine.speculation.step_cost import StepCost
from lead.engine.step_plan import TrialPlace
from lead.engine.target import Target
from shared.cache_edits import apply_edits
from shared.llama.span import Span

_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
WIDEST = max(_WIDTHS)
EMPTY_CACHE = TrialPlace()
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
    place: TrialPlace = EMPTY_CACHE,
    widths: Sequence[int] = _WIDTHS,
    n_repeats: int = _REPEATS,
    max_seconds: float = _MAX_SECONDS,
    max_step_seconds: float = math.inf,
) -> None:
    """Time steps of several widths at `place`, and leave it as it was.

    The widths take turns, so that a busy moment of the machine does not affect one of them alone. Ends early
    when `interrupted` returns True, or after a step that took longer than `max_step_seconds`.
    """
    apply_edits(place.edits, target)
    began = clock()
    for width in chain.from_iterable(repeat(widths, n_repeats)):
        if interrupted() or clock() - began > max_seconds:
            return
        tokens, start = varied_tokens(n_vocab, width), clock()
        target.decode([Span(place.slot, place.n_cached, tokens, width)])
        seconds = clock() - start
        cost.learn(width, seconds)
        target.trim(place.slot, place.n_cached)
        if seconds > max_step_seconds:
            return


def varied_tokens(n_vocab: int, n: int) -> list[int]:
    """As different as those of a text: a mixture of experts would send equal ones to the same experts."""
    return random.Random(0).choices(range(n_vocab), k=n)  # noqa: S311 - the same at each start
