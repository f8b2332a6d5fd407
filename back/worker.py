"""The thread that drafts: never waits for an answer, only for something to do."""

import queue
import threading
import time
from collections.abc import Callable, Iterable

from back.drafter import Drafter
from back.pace import Pace
from shared.protocol import Close, Draft, Extend, Open, Tune

News = Open | Extend | Close | Tune


class Worker:
    """Owns the drafter. `on_message` and `on_disconnect` may be called from any thread."""

    def __init__(
        self,
        drafter: Drafter,
        pace: Pace,
        on_draft: Callable[[Draft], None],
        on_failure: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The callbacks are called in the worker's thread; after `on_failure` it has ended."""
        self._drafter = drafter
        self._pace = pace
        self._clock = clock
        self._on_draft = on_draft
        self._on_failure = on_failure
        # Unbounded, but never more than the texts it follows: the lead tells everything once.
        self._inbox: queue.SimpleQueue[News | None] = queue.SimpleQueue()

    def start(self) -> None:
        """Draft from now on, until the process ends."""
        threading.Thread(target=self._run, name="drafter", daemon=True).start()

    def on_message(self, message: News) -> None:
        """The lead has sent a message."""
        self._inbox.put(message)

    def on_disconnect(self) -> None:
        """The connection to the lead has ended."""
        self._inbox.put(None)

    def step(self) -> None:
        """Take in all that was told, waiting for it if there is nothing else to do, then one decode."""
        if self._take_in():
            # The lead is about to choose what to check: what it has not seen may be what it needs now.
            self._send(self._pace.flush(self._clock()))
        grown = self._drafter.step()
        self._send(self._pace.due(grown, self._clock(), idle=self._drafter.idle))

    def _take_in(self) -> bool:
        """Whether anything was told. While it waits nothing is unsent: `due` was told of the idleness."""
        told = False
        while not told or not self._inbox.empty():
            try:
                message = self._inbox.get(block=self._drafter.idle)
            except queue.Empty:
                break
            told = True
            if message is None:
                self._drafter.reset()
            else:
                self._drafter.follow(message)
        return told

    def _send(self, sequences: Iterable[str]) -> None:
        for sequence in sequences:
            if draft := self._drafter.draft(sequence):
                self._on_draft(draft)

    def _run(self) -> None:
        try:
            while True:
                self.step()
        except Exception as error:  # noqa: BLE001 - handed over: a thread's exception reaches nobody
            self._on_failure(error)
