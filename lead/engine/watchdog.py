"""Notices that a process has stopped giving signs of life."""

import asyncio

_TICKS = 10
"""Silence is counted in ticks, not by the clock: while the front is stopped, too (Ctrl-Z), none pass."""
_MOST_START_SECONDS = 60.0
"""A process that imports its modules gives no sign of life yet."""


class Watchdog:
    """`wait_for_silence` returns when `heard` has not been called for `seconds`."""

    def __init__(self, seconds: float) -> None:
        """0: never."""
        self._seconds = seconds
        self._ever_heard = False
        self._n_silent = 0

    def heard(self) -> None:
        """A sign of life."""
        self._ever_heard = True
        self._n_silent = 0

    async def wait_for_silence(self) -> None:
        """Returns after `seconds` of silence; the first sign of life may take longer."""
        if not self._seconds:
            await asyncio.Event().wait()
        while self._n_silent < self._most_silent_ticks:
            await asyncio.sleep(self._seconds / _TICKS)
            self._n_silent += 1

    @property
    def _most_silent_ticks(self) -> float:
        return _TICKS if self._ever_heard else _TICKS * max(1.0, _MOST_START_SECONDS / self._seconds)
