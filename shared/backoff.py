"""Exponential back-off with jitter."""

import random
from collections.abc import Generator


def jittered_delays(first: float, most: float, rng: random.Random) -> Generator[float]:
    """Seconds to wait before each retry: doubling from `first` up to `most`, each times 0.5 to 1.

    Jitter keeps many clients of one server from reconnecting at the same moment.
    """
    delay = first
    while True:
        yield delay * rng.uniform(0.5, 1.0)
        delay = min(delay * 2, most)
