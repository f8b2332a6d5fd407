"""Rate limits by token bucket, and growing delays between attempts."""

import random
from collections.abc import Iterator


class Bucket:
    """Allows `rate` per second on average, and up to `burst` at once. Reads no clock."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """`now` is in seconds, of the same clock as in `take`."""
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._filled_at = now

    def take(self, now: float, amount: float = 1) -> bool:
        """Return whether `amount` more is allowed at `now`; if so, it is counted."""
        self._fill(now)
        if self._left < amount:
            return False
        self._left -= amount
        return True

    def drain(self, now: float, amount: float) -> None:
        """Take `amount`, or all that is left if that is less."""
        self._fill(now)
        self._left = max(0.0, self._left - amount)

    def left(self, now: float) -> float:
        """Return the amount that would be allowed at `now`."""
        self._fill(now)
        return self._left

    def wait(self, now: float) -> float:
        """Return the seconds from `now` until one more is allowed; 0 if one is allowed now."""
        self._fill(now)
        return max(0.0, (1 - self._left) / self._rate)

    def _fill(self, now: float) -> None:
        self._left = min(self._burst, self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now


class Backoff(Iterator[float]):
    """Iterates over the seconds to wait before each further attempt.

    They double from `first` up to `maximum`, times a random factor of 0.5 to 1, which keeps many clients of
    one server from reconnecting at the same moment.
    """

    def __init__(self, first: float, maximum: float, rng: random.Random, *, at_once: bool = False) -> None:
        """at_once: the first attempt after a success does not wait."""
        self._first, self._max, self._rng = first, maximum, rng
        self._at_once = at_once
        self.reset()

    def reset(self) -> None:
        """Start again with the first delay, after a success."""
        self._next = 0.0 if self._at_once else self._first

    def __next__(self) -> float:
        delay, self._next = self._next, min(max(self._first, self._next * 2), self._max)
        return delay * self._rng.uniform(0.5, 1.0)
