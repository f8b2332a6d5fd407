"""Delays between tries to reach something that may come back."""

import random
from collections.abc import Generator


def jittered_delays(first: float, most: float, rng: random.Random) -> Generator[float]:
    """Seconds to wait before each next try: doubling from `first` up to `most`, each between half and whole.

    The jitter keeps many peers that lost the same server from coming back at the same moment.
    """
    delay = first
    while True:
        yield delay * rng.uniform(0.5, 1.0)
        delay = min(delay * 2, most)
