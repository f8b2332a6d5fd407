"""How long a step takes: T(n), learned from the steps themselves, and which n steps with drafts may have.

How draft tokens of several sequences share a step depends on the memory of the model: the likeliest tokens
first, or equally many of each sequence.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise, repeat, zip_longest
from statistics import median

from lead.engine.engine_limits import EngineLimits
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.drafts import MAX_DEPTH, Probabilities
from lead.engine.speculation.forecast import Candidate

_MIN_STEP_S = 1e-6
"""No step is shorter; a coarse clock may measure 0."""
_GUESSED_STEP_S = 0.05
"""T(1) before the first step; arbitrary, since only ratios matter until then."""
_GUESSED_SLOPE = 0.1
"""(T(n + 1) - T(n)) / T(1) while only one n has been measured."""
N_UNSTEADY = 2
"""Steps of a size on a GPU that take longer than further ones: llama.cpp builds a graph, then CUDA records
it. An H200 took 4.2 and 6.0 ms for them, then 3.1."""
_MOST_EXCESS = 3.0
"""How much longer such a step may count for, relative to a steady one: any step may be interrupted."""


class StepCost:
    """T(n), the time of a step with n tokens in its batch.

    Samples are kept relative to a common pace, which drifts with the machine and the sequences' lengths.

    So the estimate for an n that has not occurred for a while follows the others. While nearly all steps have
    one n, nothing tells its own changes from those of the pace: they count as the pace's, or the ratio of
    that n to all others would drift with every slow moment.
    """

    def __init__(self, constants: SpeculationConstants = DEFAULTS, *, settles: bool = False) -> None:
        """settles: on a GPU, where a step takes longer until some of its size have gone before."""
        self._constants = constants
        self._settles = settles
        self._size, self._n_of_size = 0, 0  # of the last steps
        self._excess, self._n_changes = 0.0, 0.0
        self._max_exact = constants.max_exact_size
        self._pace = 1.0
        self._surprises: deque[float] = deque(maxlen=constants.pace_window)  # logarithms of actual / expected
        self._samples: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._known: list[int] = []
        self._last_seen: dict[int, int] = {}
        self._n_learned = 0
        self._recent: deque[int] = deque(maxlen=constants.pace_share_window)

    def learn_next(self, n_tokens: int, seconds: float) -> None:
        """The engine's next step, of `n_tokens`, took `seconds`.

        Wide steps read prompts: settling adds little to them, and their T(n) is known from them alone.
        """
        is_wide = n_tokens > self._max_exact
        if is_wide:
            self._size, self._n_of_size = n_tokens, 0
        if not self._settles or is_wide or self._is_steady(n_tokens) or not self._known:
            self.learn(n_tokens, seconds)
        else:
            steady = self.seconds(n_tokens)
            self._excess += min(max(0.0, seconds - steady), _MOST_EXCESS * steady)

    def learn(self, n_tokens: int, seconds: float) -> None:
        """A step of `n_tokens` took `seconds`, after others of that size."""
        n, seconds = self._bucket_of(n_tokens), max(seconds, _MIN_STEP_S)
        self._n_learned += 1
        self._last_seen[n] = self._n_learned
        self._recent.append(n)
        before = self._medians.get(n)
        if before is None:
            self._samples[n] = deque(maxlen=self._constants.step_window)
            insort(self._known, n)
        else:
            self._drift(math.log(seconds / (self._pace * before)))
        self._samples[n].append(seconds / self._pace)
        self._medians[n] = median(self._samples[n])
        if before is not None:
            self._attribute_to_pace(n, self._medians[n] / before)

    def seconds(self, n_tokens: int) -> float:
        """T(n_tokens), linear between measured points. A guess before the first step."""
        if not self._known:
            return _GUESSED_STEP_S * (1 + _GUESSED_SLOPE * (n_tokens - 1))
        if (known := self._medians.get(n_tokens)) is not None and n_tokens <= self._max_exact:
            return self._pace * known
        return self._pace * self._interpolated(n_tokens)

    def change_seconds(self, n_tokens: int) -> float:
        """How much longer this step and the next ones take if it has another size than the last one."""
        if not self._settles or n_tokens == self._size or not self._n_changes:
            return 0.0
        return self._constants.change_share * self._excess / self._n_changes

    def _is_steady(self, n_tokens: int) -> bool:
        """Whether enough steps of this size have gone before this one, which is recorded."""
        if n_tokens != self._size:
            self._size, self._n_of_size = n_tokens, 0
            decay = self._constants.change_decay
            self._excess, self._n_changes = decay * self._excess, decay * self._n_changes + 1
        self._n_of_size += 1
        return self._n_of_size > N_UNSTEADY

    def age(self, n_tokens: int) -> int:
        """How many steps ago T(n_tokens) was measured; a large number if never.

        0 where steps settle: a single one would measure something else.
        """
        if self._settles:
            return 0
        seen = self._last_seen.get(self._bucket_of(n_tokens))
        return self._n_learned - seen if seen is not None else 1 << 30

    def table(self) -> dict[int, float]:
        """T(n) in seconds for every n that has been measured."""
        return {n: self._pace * self._medians[n] for n in self._known}

    def _attribute_to_pace(self, n: int, change: float) -> None:
        """The more of the last steps were of n, beyond a half, the more of this factor is the pace's."""
        change **= max(0.0, 2 * self._recent.count(n) / len(self._recent) - 1)
        self._pace *= change
        samples = self._samples[n]
        for i, sample in enumerate(samples):
            samples[i] = sample / change
        self._medians[n] /= change

    def _drift(self, surprise: float) -> None:
        self._surprises.append(surprise)
        constants = self._constants
        change = min(max(median(self._surprises), -constants.max_pace_change), constants.max_pace_change)
        self._pace *= math.exp(constants.pace_gain * change)

    def _interpolated(self, n: int) -> float:
        known, medians = self._known, self._medians
        if len(known) == 1:
            first = medians[known[0]]
            return first * (1 + _GUESSED_SLOPE * (n - 1)) / (1 + _GUESSED_SLOPE * (known[0] - 1))
        right = bisect_left(known, n)
        if right == 0:
            return medians[known[0]]
        right = min(right, len(known) - 1)
        low, high = known[right - 1], known[right]
        slope = (medians[high] - medians[low]) / (high - low)
        if n > high:
            return medians[high] + max(slope, 0.0) * (n - high)
        return medians[low] + slope * (n - low)

    def _bucket_of(self, n_tokens: int) -> int:
        if n_tokens <= self._max_exact:
            return n_tokens
        return self._max_exact * max(2, round(n_tokens / self._max_exact))


class Batching(ABC):
    """The batches that a step may have, from the one without drafts on: of these `sizes`, in tokens."""

    def __init__(self, cost: StepCost | None = None) -> None:
        self.cost = cost or StepCost()

    @abstractmethod
    def sizes(self, n_base: int, lengths: Sequence[int]) -> range:
        """Up to that of drafts of these lengths; `n_base` tokens are in any case."""

    def seconds(
        self,
        sizes: range,
        candidates: Sequence[Candidate],  # noqa: ARG002 - for `Replaying`
        n_prompt: int,  # noqa: ARG002 - for `Replaying`
    ) -> list[float]:
        """How long a step takes with each of the sizes, which count `n_prompt` tokens of prompts."""
        cost = self.cost
        return [cost.seconds(n) + cost.change_seconds(n) for n in sizes]

    @abstractmethod
    def expected(self, drafts: Sequence[Probabilities], n: int) -> list[float]:
        """Expected tokens of steps with sizes[0] to sizes[n] tokens, as far as there are drafts for these."""

    @abstractmethod
    def depths(self, drafts: Sequence[Probabilities], n: int) -> tuple[int, ...]:
        """How many draft tokens of each sequence are in a batch of sizes[n] tokens."""


class LikeliestFirst(Batching):
    """Any number of draft tokens for each sequence."""

    def sizes(self, n_base: int, lengths: Sequence[int]) -> range:
        return range(n_base, n_base + min(sum(lengths), MAX_DEPTH) + 1)

    def expected(self, drafts: Sequence[Probabilities], n: int) -> list[float]:
        likeliest = drafts[0] if len(drafts) == 1 else sorted(chain.from_iterable(drafts), reverse=True)
        return list(accumulate(likeliest[:n], initial=float(len(drafts))))

    def depths(self, drafts: Sequence[Probabilities], n: int) -> tuple[int, ...]:
        if len(drafts) == 1:
            return (n,)
        ranked = sorted(
            ((each, i) for i, draft in enumerate(drafts) for each in draft), key=lambda pair: -pair[0]
        )
        taken = [i for _, i in ranked[:n]]
        return tuple(taken.count(i) for i in range(len(drafts)))


class EqualDepths(Batching):
    """The same depth for all, where llama.cpp would decode spans of different lengths in several passes.

    For a sequence with a shorter draft, padding tokens are decoded (`shared.llama.span`).
    """

    def sizes(self, n_base: int, lengths: Sequence[int]) -> range:
        n_sequences = len(lengths)
        n_draft = n_sequences * min(max(lengths), MAX_DEPTH // n_sequences)
        return range(n_base, n_base + n_draft + 1, n_sequences)

    def expected(self, drafts: Sequence[Probabilities], n: int) -> list[float]:
        columns = [sum(column) for column in zip_longest(*drafts, fillvalue=0.0)]
        return list(accumulate(columns[:n], initial=float(len(drafts))))

    def depths(self, drafts: Sequence[Probabilities], n: int) -> tuple[int, ...]:
        return tuple(min(len(draft), n) for draft in drafts)


class Replaying(EqualDepths):
    """For recurrent models without rollback, which decode what was accepted of a rejected draft again.

    Such a model returns to the state before the draft (`shared.llama.slot_parts`). What was accepted is
    replayed together with the next draft, so a rejection makes the next step wider. Depths are equal, but
    without padding, which would be a rejected draft token of each sequence: spans may have unequal lengths,
    and llama.cpp decodes them in several passes.
    """

    def seconds(self, sizes: range, candidates: Sequence[Candidate], n_prompt: int) -> list[float]:
        max_depth = len(sizes) - 1
        replays = [self._replay_seconds(each, max_depth) for each in candidates]
        return [
            self._step_seconds(candidates, n_prompt, depth) + sum(replay[depth] for replay in replays)
            for depth in range(max_depth + 1)
        ]

    def _step_seconds(self, candidates: Sequence[Candidate], n_prompt: int, depth: int) -> float:
        """The time of all passes; the first has as many tokens of each span as the shortest, and so on."""
        if len(candidates) == 1:
            return self.cost.seconds(candidates[0].n_fed + depth + n_prompt)
        lengths = sorted(
            each.n_fed + (min(depth, len(each.chain)) if each.chain else depth) for each in candidates
        )
        if n_prompt:
            lengths.append(lengths[-1] + n_prompt)
        batch_sizes = [
            (longer - shorter) * (len(lengths) - i)
            for i, (shorter, longer) in enumerate(pairwise([0, *lengths]))
            if longer > shorter
        ]
        return sum(map(self.cost.seconds, batch_sizes))

    def _replay_seconds(self, candidate: Candidate, max_depth: int) -> list[float]:
        """By depth: how much longer the next step is expected to take for what it replays.

        If the draft is rejected after a accepted tokens, they and the `n_fed` before them are replayed.
        """
        plain, seconds, result = self.cost.seconds(1), 0.0, [0.0]
        probabilities = [1.0, *_extended(candidate.probabilities, max_depth)]
        for n_accepted, (before, after) in enumerate(pairwise(probabilities)):
            n_replayed = candidate.n_fed + n_accepted
            seconds += (before - after) * max(0.0, self.cost.seconds(1 + n_replayed) - plain)
            result.append(seconds)
        return result


def batching_for(limits: EngineLimits, cost: StepCost | None = None) -> Batching:
    """What suits the memory of the model."""
    if limits.traits.replays:
        return Replaying(cost)
    return EqualDepths(cost) if limits.pads else LikeliestFirst(cost)


def _extended(draft: Probabilities, n: int) -> list[float]:
    """`draft` as if its last token were followed by others of the same probability."""
    known = list(draft[:n])
    ratio = known[-1] / known[-2] if len(known) > 1 else (known[0] if known else 1.0)
    for _ in repeat(None, n - len(known)):
        known.append((known[-1] if known else 1.0) * ratio)
    return known
