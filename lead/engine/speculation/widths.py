"""The batch size of a step on devices where changing it costs time.

CUDA records a new graph for each batch size, so a step of another size costs time, and so does the return to
the old size. Therefore most steps have a usual size: smaller ones are padded, and larger ones must be worth
the change.
"""

from collections.abc import Sequence

from lead.engine.speculation.batching import StepWidths
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from shared.step_cost import StepCost

_N_WIDTHS = 17
"""The number of widths that may become the usual one, starting with the width without drafts."""
_MAX_PADDING, _MAX_SHARE = 2, 0.9
"""A step with drafts gets up to 2 padding tokens if they reduce its time to less than this share."""


class Widths(StepWidths):
    """Learns the usual batch size of steps, and chooses batch sizes by it.

    On a GPU, changing the batch size takes time. The policy calls `learn` before each step with the expected
    tokens of each size.
    """

    def __init__(
        self, cost: StepCost, constants: SpeculationConstants = DEFAULTS, *, pads: bool = False
    ) -> None:
        """pads: whether steps may be padded. They are padded only if T(n) was measured on a GPU."""
        super().__init__(cost)
        self._pads = pads and cost.settles
        self._max_width = constants.max_exact_size
        self._decay = constants.width_decay
        self._base = 0  # the width without drafts
        self._worths: list[float] = []  # by width - base: of the last steps, if all had had this width
        self._changing = 0.0  # the same, if each step had had its best width
        self._usual = 0  # 0: none

    def seconds(self, sizes: range) -> list[float]:
        """Return T(n) of the next step for each of these sizes, in the batch size chosen for it.

        Includes the cost of changing to that batch size, and back to the usual one. sizes[0] is the step
        without drafts.
        """
        if not self._cost.settles:
            return super().seconds(sizes)
        return [price for price, _ in self._cheapest(sizes)]

    def width(self, n_tokens: int, n_draft: int) -> int:
        """Return the batch size for a step of `n_tokens` tokens, of which `n_draft` are draft tokens."""
        if not self._pads or n_tokens > self._max_width:
            return n_tokens
        return self._cheapest(range(n_tokens - n_draft, n_tokens + 1))[-1][1]

    def learn(self, base: int, yields: Sequence[float], rate: float) -> None:
        """Record that the next step would yield yields[n] tokens if it had `base` + n tokens.

        Yields are net of the engine's time for drafting. rate: the value of a second, in tokens.
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
        """Return the price of a step of each of these sizes, and the width in which it is cheapest."""
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
        """Return the seconds of a step of this width, with changes to it and back to the usual one; and the
        width.
        """
        first, second = self._cost.settling
        seconds, is_last = self._cost.seconds(width), width == self._cost.last_size
        if not is_last:
            seconds += first + second if width == self._usual else first
        elif self._cost.is_settling:
            seconds += second
        return seconds + (first + second if self._usual not in {0, width} else 0.0), width
