"""The drafting thread. It waits only when there is nothing to draft, never for a reply."""

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from shared.drafting.drafter import Drafter, DrafterMessage
from shared.protocol import MAX_SEQUENCES, Close, Draft, Extend, Open, Tune

_Change = DrafterMessage | Callable[[], Drafter] | None
"""A message, a function that makes the next drafter, or None: the connection has ended."""
_Inbox = queue.SimpleQueue[tuple[int, _Change, float]]
"""(number of the lead, change, time of arrival)"""


class TimeShares(Protocol):
    """Decides which of several leads are served in a step (`back.lead_shares`)."""

    def choose(self, waiting: Collection[int]) -> set[int]: ...

    def charge(self, n_tokens: Mapping[int, int], seconds: float) -> None: ...

    def claim(self, lead: int, value: float | None) -> None:
        """Set the value of a draft token that a lead reports; None: unknown."""

    def learn(self, lead: int, n_right: int, n_wrong: int) -> None: ...


class Worth(Protocol):
    """Receives the outcomes of drafts for one lead (implemented in `back.worth`)."""

    def rest(self) -> None: ...

    def learn(self, n_tokens: int, n_right: int, n_wrong: int, now: float) -> None: ...


class DraftWorker:
    """The drafting thread for all leads: handles their messages, runs the drafter, posts its drafts."""

    def __init__(
        self,
        drafter: Drafter,
        posts: Sequence[Callable[[Draft], None]],
        on_failure: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        n_sequences: int = MAX_SEQUENCES,
        shares: TimeShares | None = None,
        worth: Sequence[Worth] = (),
    ) -> None:
        """posts: for each lead, a function that sends it a draft. n_sequences: the maximum for each lead.

        worth: for each lead, the receiver of its drafts' outcomes; empty: outcomes are not reported.
        shares: divides the time among several leads; None: each step serves all.
        `posts` and `on_failure` are called in the worker's thread, which ends after `on_failure`.
        """
        self._drafter = drafter
        self._clock = clock
        self._posts = posts
        self._on_failure = on_failure
        self._n_sequences = n_sequences
        self._shares = shares
        self._worth = worth
        # Bounded by the links, which read no more from the leads while there are many.
        self._inbox: _Inbox = queue.SimpleQueue()

    def start(self) -> None:
        """Start the thread; it drafts until the process ends."""
        threading.Thread(target=self._run, name="drafter", daemon=True).start()

    def change_drafter(self, make: Callable[[], Drafter]) -> None:
        """Replace the drafter by the result of `make`, which is called in the worker's thread."""
        self._inbox.put((0, make, self._clock()))

    def on_message(self, lead: int, message: DrafterMessage | None) -> None:
        """Queue a message of a lead; None: the lead has disconnected. Any thread may call it."""
        if message is not None:
            self._drafter.interrupt(message, lead)
        self._inbox.put((lead, message, self._clock()))

    @property
    def n_unread(self) -> int:
        """The number of queued messages of all leads."""
        return self._inbox.qsize()

    def step(self) -> None:
        """Handle all queued messages, then decode once. Waits for a message if there is nothing to draft."""
        if self._handle_messages():
            self._send(self._drafter.take_due(self._clock(), at_once=True))
        self._decode()

    def _decode(self) -> None:
        only = self._served(self._shares) if self._shares else None
        began = self._clock()
        self._drafter.step(only)
        now = self._clock()
        self._drafter.learn(now - began)
        if self._shares:
            self._shares.charge(self._drafter.n_decoded, now - began)
        self._send(self._drafter.take_due(now))

    def _served(self, shares: TimeShares) -> set[str]:
        """Return the sequences of the leads to serve in the next step."""
        waiting = self._drafter.waiting
        return {sequence for lead in shares.choose(waiting.keys()) for sequence in waiting[lead]}

    def _handle_messages(self) -> bool:
        """Handle all queued messages; return whether there were any.

        If the drafter is idle (all drafts have been sent), waits for a message.
        """
        received = False
        while not received or not self._inbox.empty():
            try:
                lead, message, arrived = self._inbox.get(block=self._drafter.idle)
            except queue.Empty:
                break
            received = True
            self._handle(lead, message, arrived)
        return received

    def _handle(self, lead: int, message: _Change, arrived: float) -> None:
        match message:
            case None:
                self._drafter.reset(lead)
                self._rest(lead)
            case Open():
                if self._n_open(lead) < self._n_sequences:  # its part of the slots
                    self._drafter.handle(message, lead)
            case Extend() | Close():
                n_right, n_wrong = self._drafter.handle(message, lead, (arrived, self._clock()))
                if self._shares:
                    self._shares.learn(lead, n_right, n_wrong)
                if isinstance(message, Extend) and self._worth:
                    self._worth[lead].learn(len(message.tokens), n_right, n_wrong, arrived)
                self._rest(lead)
            case Tune():
                if self._shares:
                    self._shares.claim(lead, message.value)
                self._drafter.handle(message, lead)
            case _:
                self._drafter = message()

    def _rest(self, lead: int) -> None:
        if self._worth and not self._n_open(lead):
            self._worth[lead].rest()

    def _n_open(self, lead: int) -> int:
        return sum(sequence.group == lead for sequence in self._drafter.sequences.values())

    def _send(self, drafts: Iterable[tuple[int, Draft]]) -> None:
        for lead, draft in drafts:
            self._posts[lead](draft)

    def _run(self) -> None:
        try:
            while True:
                self.step()
        except Exception as error:  # noqa: BLE001 - handed over: a thread's exception would be lost
            self._on_failure(error)
