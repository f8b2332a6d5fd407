"""Waking everyone who waits for the next change of something."""

import asyncio


class Broadcast:
    """Take `next_change()` before looking at the state, look, then wait on it: no change is missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def next_change(self) -> asyncio.Event:
        """An event that the next `notify` sets."""
        return self._event

    def notify(self) -> None:
        """Something has changed."""
        self._event.set()
        self._event = asyncio.Event()
