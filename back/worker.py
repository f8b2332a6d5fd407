"""The drafting thread: never waits for an answer, only for something to do."""

import queue
import threading
import time
from collections.abc import Callable, Iterable

from back.send_scheduler import SendScheduler
from shared.drafting.drafter import Drafter
from shared.protocol import Close, Draft, Extend, Open, Tune

WorkerMessage = Open | Extend | Close | Tune


class Worker:
    """Owns the drafter. `on_message` and `on_disconnect` may be called from any thread."""

    def __init__(
        self,
        drafter: Drafter,
        scheduler: SendScheduler,
        post: Callable[[Draft], None],
        on_failure: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`post` and `on_failure` are called in the worker's thread, which ends after `on_failure`."""
        self._drafter = drafter
        self._scheduler = scheduler
        self._clock = clock
        self._post = post
        self._on_failure = on_failure
        # Bounded by the link, which reads no more from the lead while there are many.
        self._inbox: queue.SimpleQueue[WorkerMessage | Callable[[], Drafter] | None] = queue.SimpleQueue()

    def start(self) -> None:
        """Draft from now on, until the process ends."""
        threading.Thread(target=self._run, name="drafter", daemon=True).start()

    @property
    def n_unread(self) -> int:
        """How many messages are yet to be handled."""
        return self._inbox.qsize()

    def on_message(self, message: WorkerMessage) -> None:
        """The lead has sent a message."""
        self._inbox.put(message)

    def change_drafter(self, make: Callable[[], Drafter]) -> None:
        """Draft with another drafter from now on; `make` is called in the worker's thread."""
        self._inbox.put(make)

    def on_disconnect(self) -> None:
        """The connection to the lead has ended."""
        self._inbox.put(None)

    def step(self) -> None:
        """Handle all messages, waiting for one if there is nothing else to do; then one decode."""
        if self._handle_messages():
            # The lead is about to choose the draft that it verifies: it may need what is still unsent.
            self._send(self._scheduler.flush(self._clock()))
        updates = self._drafter.step()
        self._send(self._scheduler.due(updates, self._clock(), idle=self._drafter.idle))

    def _handle_messages(self) -> bool:
        """Whether there were any. Nothing is unsent while it waits: `due` sends everything when idle."""
        received = False
        while not received or not self._inbox.empty():
            try:
                message = self._inbox.get(block=self._drafter.idle)
            except queue.Empty:
                break
            received = True
            if message is None:
                self._drafter.reset()
            elif callable(message):
                self._drafter = message()
            else:
                self._drafter.handle(message)
        return received

    def _send(self, sequences: Iterable[str]) -> None:
        for sequence in sequences:
            if draft := self._drafter.draft(sequence):
                self._post(draft)

    def _run(self) -> None:
        try:
            while True:
                self.step()
        except Exception as error:  # noqa: BLE001 - handed over: a thread's exception would be lost
            self._on_failure(error)
