"""T(n) as an earlier process measured it, so that a start need not time all sizes again."""

from pydantic import BaseModel

from lead.engine.calibration import StepTimer
from shared.step_cost import StepCost

_SAME = 1.25
"""A step that takes this many times as long, or as short, says that T(n) is another now."""
_N_CHECKED = 3


class StepTimes(BaseModel, frozen=True):
    """Seconds of a step by its size, with `n_threads`."""

    n_threads: int
    seconds: dict[int, float]

    def teach(self, cost: StepCost, timer: StepTimer) -> bool:
        """Have `cost` learn it, with the pace of the moment, if a step of one token takes about as long now.

        The model must have `n_threads` already.
        """
        if 1 not in self.seconds:
            return False
        single = min(timer.seconds(1) for _ in range(_N_CHECKED))
        if not self.seconds[1] / _SAME < single < self.seconds[1] * _SAME:
            return False
        for size, seconds in sorted(self.seconds.items()):
            cost.learn(size, seconds * single / self.seconds[1])
        return True
