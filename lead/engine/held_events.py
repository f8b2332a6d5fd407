"""When events go to the front: the tokens of short steps go together.

The front wakes up for what the engine sends. On a CPU whose cores all compute that interrupts a step, and
costs more than what the front does with a token.
"""

from collections.abc import Sequence

from lead.engine.events import Committed, Event, Failed, Finished

_HOLD_SECONDS = 1 / 30
"""From one message to the next, at most, while steps are shorter: nobody reads faster. SmolLM2 on two cores,
8 ms a token, becomes 5 % faster."""


class HeldEvents:
    """Holds tokens back for a moment, unless they are the first of an answer, or a back waits for them."""

    def __init__(self) -> None:
        self.has_backs = False
        self._held: list[Event] = []
        self._begun: set[str] = set()
        self._asked_at = self._sent_at = float("-inf")

    def pass_on(self, events: Sequence[Event], now: float, *, at_once: bool = False) -> list[Event]:
        """What to send at `now` (seconds): all that is held and `events`, or nothing yet.

        It will be asked again after about as long as has passed since the last time.
        """
        are_urgent = [self._is_urgent(event) for event in events]
        self._held += events
        next_time, self._asked_at = 2 * now - self._asked_at, now
        if not (at_once or self.has_backs or any(are_urgent) or next_time - self._sent_at > _HOLD_SECONDS):
            return []
        sent, self._held = self._held, []
        if sent:
            self._sent_at = now
        return sent

    def drop(self, sequence: str) -> None:
        """Nobody wants its tokens any more."""
        self._held = [event for event in self._held if not _is_of(event, sequence)]
        self._begun.discard(sequence)

    def _is_urgent(self, event: Event) -> bool:
        match event:
            case Committed():
                is_first = event.sequence not in self._begun
                self._begun.add(event.sequence)
                return is_first
            case Finished() | Failed():
                self._begun.discard(event.sequence)
        return True


def _is_of(event: Event, sequence: str) -> bool:
    return isinstance(event, Committed) and event.sequence == sequence
