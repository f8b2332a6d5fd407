"""Measures T(n): before the first request, again while idle, and for `lead plan`; and stores it for the next
start.
"""

import contextlib
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from statistics import median
from typing import Self

from pydantic import BaseModel

from lead.engine.slot import TrialPlace
from lead.engine.target import Target
from shared.cache_edits import apply_edits
from shared.errors import KvCacheFullError
from shared.llama.span import Span
from shared.step_cost import N_UNSTEADY, StepCost

BATCH_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16)
"""Some kernels end at eight tokens: nine may take half as long again, or less than eight."""
_REPEATS = 5
_MAX_SECONDS = 10.0
"""Time limit; for a slower model the rest is learned from requests."""
_QUIET = 1.2
"""A machine on which T(1) is longer by this factor than it was is busy."""
_EMPTY_CACHE = TrialPlace()
_AFTER_SECONDS = (3.0, 10.0, 30.0)
"""Since the engine was ready. So many samples of each size replace those of the start."""
_SAME, _N_CHECKED = 1.25, 3
"""A step that takes this many times as long, or as short, each time says that T(n) is another now."""
_RETRY_SECONDS, _MAX_RETRIES = 3.0, 5
"""After an attempt that was interrupted, or made while the machine was busy, which takes a step or two; each
time twice as long, because a model may just be slow."""


class StepTimer:
    """Times decodes of a model: the target, a draft model, or heads."""

    def __init__(
        self,
        decode: Callable[[list[int]], object],
        undo: Callable[[], None],
        n_vocab: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_offloaded: bool = False,
    ) -> None:
        """`decode` decodes tokens, of a vocabulary of `n_vocab`; `undo` removes them from the cache.

        is_offloaded: a GPU computes. It compiles what a batch size needs when it first has it. In steady
        decoding, steps of one size follow one another: llama.cpp then reuses its graph, and CUDA records the
        second of them, which takes twice as long, and replays the others.
        """
        self._decode = decode
        self._undo = undo
        self._n_vocab = n_vocab
        self._clock = clock
        self._is_offloaded = is_offloaded
        self._unsteady: list[tuple[float, ...]] = []

    @classmethod
    def of_target(
        cls,
        target: Target,
        n_vocab: int,
        clock: Callable[[], float] = time.monotonic,
        place: TrialPlace = _EMPTY_CACHE,
    ) -> Self:
        """A timer for steps of the target at `place`, which is restored; by default slot 0, which must be
        empty.
        """

        def decode(tokens: list[int]) -> None:
            target.decode([Span(place.slot, place.n_cached, tokens, len(tokens))])

        def undo() -> None:
            target.trim(place.slot, place.n_cached)

        return cls(decode, undo, n_vocab, clock, is_offloaded=target.is_offloaded)

    def warm_up(self) -> None:
        """Run untimed steps: the first one reads all weights; on a GPU the first one of each size takes
        longer, too.

        Sizes not reached within `_MAX_SECONDS` are left to requests.
        """
        end = self._clock() + _MAX_SECONDS
        for size in BATCH_SIZES if self._is_offloaded else (1,):
            if self._clock() < end:
                self._step(size)

    def seconds(self, size: int) -> float:
        before = [self._step(size) for _ in range(N_UNSTEADY if self._is_offloaded else 0)]
        steady = self._step(size)
        self._unsteady.append(tuple(each - steady for each in before))
        return steady

    @property
    def settling(self) -> list[float]:
        """Seconds by which the first steps of a size took longer, from the steps timed so far."""
        return [median(each) for each in zip(*self._unsteady, strict=True)]

    def _step(self, size: int) -> float:
        # The tokens differ as those of a text do: a mixture would send equal ones to the same experts.
        tokens = random.Random(0).choices(range(self._n_vocab), k=size)  # noqa: S311 - the same at each start
        began = self._clock()
        self._decode(tokens)
        seconds = self._clock() - began
        self._undo()
        return seconds

    def turns(
        self, batch_sizes: Sequence[int], n_repeats: int, interrupted: Callable[[], bool]
    ) -> Iterator[tuple[int, float]]:
        """Yield (size, seconds) for a step of each size in turn, until `interrupted` returns True.

        As the sizes alternate, a busy moment of the machine does not affect only one of them.
        """
        for size in chain.from_iterable(repeat(batch_sizes, n_repeats)):
            if interrupted():
                return
            yield size, self.seconds(size)

    def calibrate(
        self,
        cost: StepCost,
        interrupted: Callable[[], bool] = lambda: False,
        *,
        batch_sizes: Sequence[int] = BATCH_SIZES,
        n_repeats: int = _REPEATS,
        max_seconds: float = _MAX_SECONDS,
    ) -> None:
        """Let `cost` learn T(n) of these sizes; ends early when interrupted, or after `max_seconds`."""
        end = self._clock() + max_seconds
        cost.learn_turns(self.turns(batch_sizes, n_repeats, lambda: interrupted() or self._clock() > end))
        cost.learn_settling(self.settling)


def recalibrate(
    target: Target,
    cost: StepCost,
    n_vocab: int,
    interrupted: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    *,
    place: TrialPlace = _EMPTY_CACHE,
    max_step_seconds: float = math.inf,
) -> bool:
    """Time steps again at `place`, which is restored; returns whether anything was learned.

    Ends when `interrupted` returns True, after a step that took longer than `max_step_seconds`, or when the
    machine is busier than it was when T(1) was learned. Only complete turns over all sizes count.
    """
    apply_edits(place.edits, target)
    timer = StepTimer.of_target(target, n_vocab, clock, place)
    timer.seconds(1)  # what other programs have pushed out of the CPU's caches is read again
    longest_single = min(_QUIET * cost.seconds(1), max_step_seconds)
    timed = []
    for size, seconds in timer.turns(BATCH_SIZES, _REPEATS, interrupted):
        if seconds > (longest_single if size == 1 else max_step_seconds):
            break
        timed.append((size, seconds))
    complete = timed[: len(timed) - len(timed) % len(BATCH_SIZES)]
    if complete:
        cost.learn_turns(complete)
        cost.learn_settling(timer.settling)
    return bool(complete)


class Recalibration:
    """Decides when an idle engine measures again: while it starts, other programs start, too.

    Without this, a wrong T(n) of sizes that seem too slow to be used would be corrected only by chance.
    """

    def __init__(
        self,
        measure: Callable[[TrialPlace], bool],
        now: float,
        find_place: Callable[[int], TrialPlace | None],
    ) -> None:
        """measure: returns as soon as a command arrives, and whether it has learned something.

        now: when the engine is ready, in seconds. find_place: see `SlotManager`.
        """
        self._measure = measure
        self._find_place = find_place
        self._due = deque(now + seconds for seconds in _AFTER_SECONDS)
        self._n_retries = 0

    def wait(self, now: float) -> float | None:
        return max(0.0, self._due[0] - now) if self._due else None

    def turn(self, now: float, *, idle: bool) -> float:
        if idle:
            with contextlib.suppress(KvCacheFullError):  # the cache is as before
                self._run(now)
        return 0.0

    def _run(self, now: float) -> None:
        """Measure if it is due and the widest step has a place; times that were missed count once."""
        is_due = False
        while self._due and now >= self._due[0]:
            self._due.popleft()
            is_due = True
        if is_due and (place := self._find_place(max(BATCH_SIZES))) and not self._measure(place):
            again_at = now + _RETRY_SECONDS * 2**self._n_retries
            if self._n_retries < _MAX_RETRIES and (not self._due or again_at < self._due[0]):
                self._n_retries += 1
                self._due.appendleft(again_at)


class StepTimes(BaseModel, frozen=True):
    """T(n) for a later process, which then need not time all sizes: seconds by size, with `n_threads`.

    settling: as `StepCost.settling`; empty: it was not measured.
    """

    n_threads: int
    seconds: dict[int, float]
    settling: tuple[float, ...] = ()

    @classmethod
    def of(cls, cost: StepCost, n_threads: int) -> Self:
        return cls(n_threads=n_threads, seconds=cost.table(), settling=tuple(cost.settling))

    def teach(self, cost: StepCost, timer: StepTimer) -> bool:
        """Teach `cost` these times, scaled to the present pace, if a step of one token takes about as long
        now; returns whether it does.

        The model must already use `n_threads`.
        """
        if 1 not in self.seconds:
            return False
        single = min(timer.seconds(1) for _ in range(_N_CHECKED))
        if not self.seconds[1] / _SAME < single < self.seconds[1] * _SAME:
            return False
        cost.learn_table({size: each * single / self.seconds[1] for size, each in self.seconds.items()})
        cost.learn_settling(self.settling)
        return True
