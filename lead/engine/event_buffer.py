"""A buffer that holds some events for the front, to send them together with later ones.

Each send wakes the front. On a CPU whose cores all compute, waking interrupts a step and costs more than the
front's work for a token. Therefore tokens of short steps, and tokens that no client reads yet, are sent
together.
"""

from collections.abc import Callable, Iterable, Sequence

from lead.engine.commands import Cancel, Command, SetBacks, Submit
from lead.engine.events import Committed, Event, Failed, Finished

_HOLD_SECONDS = 1 / 20
"""While steps are shorter than this, tokens are held for up to this time: people do not read faster. SmolLM2
on two cores, at 8 ms per token, becomes 5 % faster."""
_SENDS_PER_SECOND = 320
"""The maximum number of sends to clients per second, over all streams together: from seventeen streams on,
tokens wait longer. Sends are half of the front's work for a stream."""
_HOLD_UNREAD_SECONDS = 1 / 4
"""The same time for answers that are not streamed. It must be short: the page shows their progress, and held
tokens are generated again if the engine process dies."""


class EventBuffer:
    """Holds tokens for a moment, unless they are the first of an answer or a back is connected."""

    def __init__(
        self, send: Callable[..., None], before: Callable[[Sequence[Event]], Iterable[Event]] = lambda _: ()
    ) -> None:
        """`send` gets events to send together; `before(events)` returns events that must precede `events`."""
        self._send, self._before = send, before
        self._has_backs = False
        self._unread: set[str] = set()
        self._hold_seconds = _HOLD_UNREAD_SECONDS
        self._held: list[Event] = []
        self._growing: dict[str, Committed] = {}  # by sequence, the held event that takes its next tokens
        self._is_urgent = False  # a held event must be sent at once
        self._begun: set[str] = set()
        self._asked_at = self._sent_at = float("-inf")

    def pass_on(self, events: Sequence[Event], now: float, *, at_once: bool = False) -> None:
        """Add `events`, and send all held events if it is time. now: seconds of a monotonic clock.

        Assumes that the time until the next call equals the time since the last call.
        """
        self.hold(events)
        next_time, self._asked_at = 2 * now - self._asked_at, now
        is_late = next_time - self._sent_at > self._hold_seconds
        if not (at_once or self._has_backs or self._is_urgent or is_late):
            return
        sent, self._held, self._is_urgent = self._held, [], False
        self._growing.clear()
        if sent:
            self._sent_at, self._hold_seconds = now, _HOLD_UNREAD_SECONDS
            self._send(*self._before(sent), *sent)

    def hold(self, events: Sequence[Event]) -> None:
        """Hold events until the next send. Steps of a sequence without drafts are merged into one event."""
        for event in events:
            self._is_urgent |= self._cannot_wait(event)
            if not isinstance(event, Committed):
                self._held.append(event)
                continue
            if event.sequence not in self._unread:
                self._hold_seconds = max(_HOLD_SECONDS, len(self._begun) / _SENDS_PER_SECOND)
            if event.is_plain and (growing := self._growing.get(event.sequence)):
                growing.tokens.extend(event.tokens)
                continue
            self._held.append(event)
            self._growing.pop(event.sequence, None)
            if event.is_plain:
                self._growing[event.sequence] = event

    def on_applied(self, command: Command) -> None:
        """Handle a command that the engine has applied; events of a cancelled sequence are dropped."""
        match command:
            case Submit(unread=True):
                self._unread.add(command.sequence)
            case SetBacks():
                self._has_backs = bool(command.names)
            case Cancel():
                name = command.sequence
                self._held = [event for event in self._held if getattr(event, "sequence", None) != name]
                self._growing.pop(name, None)
                self._forget(name)

    def _forget(self, sequence: str) -> None:
        self._begun.discard(sequence)
        self._unread.discard(sequence)

    def _cannot_wait(self, event: Event) -> bool:
        match event:
            case Committed():
                is_first = event.sequence not in self._begun
                self._begun.add(event.sequence)
                return is_first
            case Finished() | Failed():
                self._forget(event.sequence)
        return True
