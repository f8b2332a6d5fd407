"""The batch size of a step on devices where a change of it costs time.

Where CUDA records a new graph for each batch size, a step of another size costs time, and so does the way
back. Therefore most steps have a usual size: smaller ones are padded, larger ones have to be worth the
change.
"""

from collections.abc import Sequence

from lead.engine.speculation.batching import StepWidths
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from shared.step_cost import StepCost

_N_WIDTHS = 17
"""Widths that may be usual: so many from the one without drafts on."""
_MAX_PADDING, _MAX_SHARE = 2, 0.9
"""A step with drafts is padded by up to so many tokens if it then takes so much of its time, or less."""


class Widths(StepWidths):
    """The usual batch size. The policy calls `learn` before each step with the yield of each size."""

    def __init__(
        self, cost: StepCost, constants: SpeculationConstants = DEFAULTS, *, pads: bool = False
    ) -> None:
        """pads: whether steps may be padded, where T(n) is that of a GPU."""
        super().__init__(cost)
        self._pads = pads and cost.settles
        self._max_width = constants.max_exact_size
        self._decay = constants.width_decay
        self._base = 0  # the width without drafts
        self._worths: list[float] = []  # by width above that: of the last steps, had all had it
        self._changing = 0.0  # the same, had each the best for it
        self._usual = 0  # 0: none

    def seconds(self, sizes: range) -> list[float]:
        """T(n) of the next step for each of these sizes, in the batch size chosen for it.

        Includes the cost of changing to that size, and back to the usual one. Without drafts the step has
        sizes[0] tokens.
        """
        if not self._cost.settles:
            return super().seconds(sizes)
        return [price for price, _ in self._cheapest(sizes)]

    def width(self, n_tokens: int, n_draft: int) -> int:
        """The batch size in which to decode a step of `n_tokens`, of which `n_draft` are drafts."""
        if not self._pads or n_tokens > self._max_width:
            return n_tokens
        return self._cheapest(range(n_tokens - n_draft, n_tokens + 1))[-1][1]

    def learn(self, base: int, yields: Sequence[float], rate: float) -> None:
        """Learn that the next step would yield yields[n] tokens if it had `base` + n tokens; `rate`: tokens
        that a second is worth.

        The yields are net of the engine's time for drafting.
        """
        first, second = self._cost.settling
        if not self._pads or not first + second:
            return
        if base != self._base:
            self._base, self._usual = base, base
            self._worths, self._changing = [0.0] * _N_WIDTHS, 0.0
        maximum, decay = len(yields) - 1, self._decay
        worths = [yields[min(n, maximum)] - rate * self._cost.seconds(base + n) for n in range(_N_WIDTHS)]
        self._worths = [decay * past + worth for past, worth in zip(self._worths, worths, strict=True)]
        self._changing = decay * self._changing + max(worths) - rate * first
        best = max(self._worths)
        usual = self._worths[self._usual - base] if self._usual else self._changing
        if max(best, self._changing) - usual > rate * (first + second):
            self._usual = 0 if self._changing > best else base + self._worths.index(best)

    def _cheapest(self, sizes: range) -> list[tuple[float, int]]:
        """The price of a step with each of these sizes, and its width."""
        if not self._pads:
            return [self._priced(n) for n in sizes]
        priced = list(map(self._priced, range(sizes.start, sizes.stop + _MAX_PADDING)))
        anchors = [self._priced(n) for n in {self._cost.last_size, self._usual} if n <= self._max_width]
        cheapest = []
        for i, n in enumerate(sizes):
            best = priced[i]
            for other in priced[i + 1 : i + 1 + _MAX_PADDING] if i else ():
                if other[0] < _MAX_SHARE * best[0]:
                    best = other
            cheapest.append(min([best, *(each for each in anchors if each[1] > n)]))
        return cheapest

    def _priced(self, width: int) -> tuple[float, int]:
        """T of this width, and what the changes to it and back to the usual one cost."""
        first, second = self._cost.settling
        seconds, is_last = self._cost.seconds(width), width == self._cost.last_size
        if not is_last:
            seconds += first + second if width == self._usual else first
        elif self._cost.is_settling:
            seconds += second
        return seconds + (first + second if self._usual not in {0, width} else 0.0), width
