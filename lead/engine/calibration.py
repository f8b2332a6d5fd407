"""A table of T(n), measured before the first request and while there is none."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
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
_QUIET = 1.2
"""A machine on which T(1) is longer by this factor than it was is busy."""


def warm_up(target: Target, place: TrialPlace = EMPTY_CACHE) -> None:
    """Read all weights: a step takes longer the first time."""
    target.decode([Span(place.slot, place.n_cached, [0], 1)])
    target.trim(place.slot, place.n_cached)


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
    for width, seconds in _timed_steps(target, n_vocab, interrupted, clock, EMPTY_CACHE, widths, n_repeats):
        cost.learn(width, seconds)
        if clock() - began > max_seconds:
            return


def recalibrate(
    target: Target,
    cost: StepCost,
    n_vocab: int,
    interrupted: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    *,
    place: TrialPlace = EMPTY_CACHE,
    max_step_seconds: float = math.inf,
) -> bool:
    """Time steps again, at `place`, which is left as it was; returns whether something was learned.

    It ends when `interrupted` returns True, after a step that took longer than `max_step_seconds`, or when
    the machine is busier than it was when T(1) was learned. What counts is whole turns of all widths.
    """
    apply_edits(place.edits, target)
    warm_up(target, place)
    longest_single = min(_QUIET * cost.seconds(1), max_step_seconds)
    timed = []
    for width, seconds in _timed_steps(target, n_vocab, interrupted, clock, place, _WIDTHS, _REPEATS):
        if seconds > (longest_single if width == 1 else max_step_seconds):
            break
        timed.append((width, seconds))
    complete = timed[: len(timed) - len(timed) % len(_WIDTHS)]
    for width, seconds in complete:
        cost.learn(width, seconds)
    return bool(complete)


def varied_tokens(n_vocab: int, n: int) -> list[int]:
    """As different as those of a text: a mixture of experts would send equal ones to the same experts."""
    return random.Random(0).choices(range(n_vocab), k=n)  # noqa: S311 - the same at each start


def _timed_steps(  # noqa: PLR0917 - what its two callers share
    target: Target,
    n_vocab: int,
    interrupted: Callable[[], bool],
    clock: Callable[[], float],
    place: TrialPlace,
    widths: Sequence[int],
    n_repeats: int,
) -> Iterator[tuple[int, float]]:
    """Each width in turn, and the seconds of a step."""
    for width in chain.from_iterable(repeat(widths, n_repeats)):
        if interrupted():
            return
        tokens, start = varied_tokens(n_vocab, width), clock()
        target.decode([Span(place.slot, place.n_cached, tokens, width)])
        seconds = clock() - start
        target.trim(place.slot, place.n_cached)
        yield width, seconds
