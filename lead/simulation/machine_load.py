"""What else a simulated lead's machine does: its steps drift, and some take much longer."""

import math
import random
from dataclasses import dataclass

_PERIOD_S = 20.0


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """Step times swing by `drift` of theirs; the share `outliers` of steps takes four times as long."""

    drift: float = 0.0
    outliers: float = 0.0

    def slowdown(self, now: float, rng: random.Random) -> float:
        """A step's time over what it takes on an idle machine."""
        factor = 1.0
        if self.drift:
            factor += self.drift * math.sin(2 * math.pi * now / _PERIOD_S)
        if self.outliers and rng.random() < self.outliers:
            factor *= 4
        return factor


IDLE = MachineLoad()
