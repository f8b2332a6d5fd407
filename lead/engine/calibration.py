"""Measures T(n), and stores it for the next start.

T(n) is measured before the first request, again while the engine is idle, and for `lead plan`.
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
"""The batch sizes to time. Some kernels take at most eight tokens, so nine tokens may take 1.5 times as long
as eight, or even less time than eight."""
_REPEATS = 5
_MAX_SECONDS = 10.0
"""The time limit for measuring. A slow model may not reach all sizes by then; T(n) of the other sizes is
learned from requests."""
_QUIET = 1.2
"""The machine is busy if T(1) has grown by this factor."""
_EMPTY_CACHE = TrialPlace()
_AFTER_SECONDS = (3.0, 10.0, 30.0)
"""When to measure again, in seconds after the engine became ready. The new samples replace the samples from
the start."""
_SAME, _N_CHECKED = 1.25, 3
"""Stored T(n) is outdated if T(1), the quickest of three steps, has changed by more than this factor."""
_RETRY_SECONDS, _MAX_RETRIES = 3.0, 5
"""The delay after an attempt that was interrupted or found the machine busy, and the maximum number of
retries. The delay doubles with each retry, because the model itself may be slow."""


class StepTimer:
    """Measures the times of decodes of a model: the target, a draft model, or heads."""

    def __init__(
        self,
        decode: Callable[[list[int]], object],
        undo: Callable[[], None],
        n_vocab: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_offloaded: bool = False,
    ) -> None:
        """Measure the time of steps that `decode` computes; `undo` must remove their tokens from the cache.

        n_vocab: token ids to decode are drawn from range(n_vocab). is_offloaded: a GPU computes. A GPU
        compiles kernels at the first step of each batch size. In consecutive steps of one size, llama.cpp
        reuses its graph. CUDA records the graph in the second of these steps, which takes twice as long, and
        replays it in later steps.
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
        """Return a timer for steps of the target at `place`; each step leaves the place as it was.

        The default place is slot 0, which must be empty.
        """

        def decode(tokens: list[int]) -> None:
            target.decode([Span(place.slot, place.n_cached, tokens, len(tokens))])

        def undo() -> None:
            target.trim(place.slot, place.n_cached)

        return cls(decode, undo, n_vocab, clock, is_offloaded=target.is_offloaded)

    def warm_up(self) -> None:
        """Run untimed steps, because the first step reads all weights.

        On a GPU, run a step of each size: the first step of a size takes longer. A size that is not reached
        within `_MAX_SECONDS` has its first step in a request.
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
        """The seconds by which the first, second, … step of a batch size took longer than a steady step.

        Each value is the median over the steps timed so far.
        """
        return [median(each) for each in zip(*self._unsteady, strict=True)]

    def _step(self, size: int) -> float:
        # The tokens differ, as in a text: a mixture of experts would send equal tokens to the same experts.
        tokens = random.Random(0).choices(range(self._n_vocab), k=size)  # noqa: S311 - the same at each start
        began = self._clock()
        self._decode(tokens)
        seconds = self._clock() - began
        self._undo()
        return seconds

    def sweeps(
        self, batch_sizes: Sequence[int], n_repeats: int, interrupted: Callable[[], bool]
    ) -> Iterator[tuple[int, float]]:
        """Yield (size, seconds) for one step of each batch size in turn, `n_repeats` times.

        Ends early when `interrupted` returns True. Sizes alternate so that a busy moment of the machine
        affects all of them alike.
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
        """Teach `cost` the T(n) of these batch sizes.

        Stops when `interrupted` returns True, or after `max_seconds`.
        """
        end = self._clock() + max_seconds
        cost.learn_sweeps(self.sweeps(batch_sizes, n_repeats, lambda: interrupted() or self._clock() > end))
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
    """Teach `cost` new times of steps at `place`; return whether there were any. Restores the place.

    Stops when `interrupted` returns True, after a step longer than `max_step_seconds`, or when the machine is
    busier than when T(1) was learned. Only complete rounds over all sizes count.
    """
    apply_edits(place.edits, target)
    timer = StepTimer.of_target(target, n_vocab, clock, place)
    timer.seconds(1)  # not counted: it refills the CPU's caches after other programs
    longest_single = min(_QUIET * cost.seconds(1), max_step_seconds)
    timed = []
    for size, seconds in timer.sweeps(BATCH_SIZES, _REPEATS, interrupted):
        if seconds > (longest_single if size == 1 else max_step_seconds):
            break
        timed.append((size, seconds))
    complete = timed[: len(timed) - len(timed) % len(BATCH_SIZES)]
    if complete:
        cost.learn_sweeps(complete)
        cost.learn_settling(timer.settling)
    return bool(complete)


class Recalibration:
    """A chore that measures T(n) again in an idle engine, at fixed times after the start.

    The first measurement may be too high, because other programs may be starting at the same time. A size
    that seems too slow is never used in a step, so no later step would correct its T(n).
    """

    def __init__(
        self,
        measure: Callable[[TrialPlace], bool],
        now: float,
        find_place: Callable[[int], TrialPlace | None],
    ) -> None:
        """Schedule measurements. now: the time in seconds at which the engine became ready.

        measure: returns whether it learned anything, and returns early when a command arrives. find_place:
        see `SlotManager`.
        """
        self._measure = measure
        self._find_place = find_place
        self._due = deque(now + seconds for seconds in _AFTER_SECONDS)
        self._n_retries = 0

    def seconds_until_due(self, now: float) -> float | None:
        return max(0.0, self._due[0] - now) if self._due else None

    def run_due(self, now: float, *, idle: bool) -> float:
        if idle:
            with contextlib.suppress(KvCacheFullError):  # the cache is as before
                self._run(now)
        return 0.0

    def _run(self, now: float) -> None:
        """Measure if a measurement is due and there is a place for the largest batch.

        Several missed measurements count as one.
        """
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
    """Stored T(n), in seconds by batch size, measured with `n_threads` threads.

    A later process that finds these times need not measure all sizes. settling: as in `StepCost.settling`;
    empty if it was not measured.
    """

    n_threads: int
    seconds: dict[int, float]
    settling: tuple[float, ...] = ()

    @classmethod
    def of(cls, cost: StepCost, n_threads: int) -> Self:
        return cls(n_threads=n_threads, seconds=cost.table(), settling=tuple(cost.settling))

    def teach(self, cost: StepCost, timer: StepTimer) -> bool:
        """Teach `cost` these times, scaled to the present T(1); return False if T(1) has changed too much.

        The model must already use `n_threads`. Three steps of one token are timed with `timer`.
        """
        if 1 not in self.seconds:
            return False
        single = min(timer.seconds(1) for _ in range(_N_CHECKED))
        if not self.seconds[1] / _SAME < single < self.seconds[1] * _SAME:
            return False
        cost.learn_table({size: each * single / self.seconds[1] for size, each in self.seconds.items()})
        cost.learn_settling(self.settling)
        return True
