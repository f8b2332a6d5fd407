"""The delays between attempts while a server is not ready; bounded, without a clock."""

from collections.abc import Iterator

N_RETRIES = 6
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0


class RetryDelays:
    """The delays of one question: the server's Retry-After, or doubling from one second."""

    def __init__(self) -> None:
        self._own = self._doubling()

    def next(self, retry_after: float | None) -> float | None:
        """Seconds until the next attempt; None after the last one."""
        own = next(self._own, None)
        if own is None or retry_after is None:
            return own
        return min(retry_after, LONGEST_DELAY_S)

    @staticmethod
    def _doubling() -> Iterator[float]:
        for n_before in range(N_RETRIES):
            yield min(FIRST_DELAY_S * 2**n_before, LONGEST_DELAY_S)
