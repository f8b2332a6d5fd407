"""A connected back: its identity, the accuracy of its drafts, and how much it has received of each sequence.

Updates are computed from cursors when they are sent. So a slow or disconnected back costs no memory, and
catches up in few messages.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from lead.backs.draft_limits import BackStats, DraftLimits
from lead.engine_client.sequences import Broadcast, LiveSequence, Sequences
from shared.protocol import MAX_TOKENS_PER_MESSAGE, BranchPart, Close, Extend, Hello, LeadMessage, Open, Tune
from shared.terminal import one_line

Transport = Literal["websocket", "http"]

TRIAL_UPDATES = 16
"""The number of updates in a trial, after which a back's gain is known."""
_DECAY = 0.95
"""The decay, per update, of the numbers of updates and right tokens: about the last 20 updates count."""
_LATE_WEIGHT = 0.5
"""The weight of a right token that came too late, if all other tokens of its back came in time."""
_N_TRUSTED = 8.0
"""A new back is credited with this many right tokens in time, so that its first late tokens count little."""
_LATENESS_DECAY = 0.99
"""The decay, per right token, of the numbers in time and too late: about the last 100 tokens count."""
_MIN_VALUE_CHANGE = 0.15
"""Smaller changes of `Back.value` are not sent, because each makes a back divide its time again."""


@dataclass(slots=True)
class Following:
    """The part of a sequence that a back has received.

    n_sent: the number of tokens sent to the back; 0: the sequence is not open on the back. n_arrived: the
    value of n_sent at the last acknowledged reply.
    """

    n_sent: int = 0
    n_arrived: int = 0

    def unsent(self, sequence: LiveSequence, part: BranchPart | None) -> list[LeadMessage]:
        """Return messages with all unsent tokens, which count as sent from now on."""
        messages: list[LeadMessage] = []
        if not self.n_sent:
            tokens = _message_tokens(sequence, 0)
            sampling = sequence.request.sampling.for_backs
            messages.append(Open(sequence=sequence.id, sampling=sampling, tokens=tokens, part=part))
            self.n_sent = len(tokens)
        for start in range(self.n_sent, len(sequence.tokens), MAX_TOKENS_PER_MESSAGE):
            tokens = _message_tokens(sequence, start)
            messages.append(Extend(sequence=sequence.id, start=start, tokens=tokens, part=part))
        self.n_sent = len(sequence.tokens)
        return messages


@dataclass(slots=True, eq=False, kw_only=True)
class Back:
    """The record of one connected back. Times are in seconds of the registry's clock.

    peer: identifies the sender (`JoinLimits`). is_local: it runs on this machine. changed: notified when
    there are updates, or when the back was removed. followed: the received parts, by sequence. They include
    sequences for which it does not draft at present, and ended sequences that are still to be closed.

    n_updates, n_right: updates and right tokens, weighted by age; at first one of each. n_in_time, n_late:
    right tokens that arrived, while the back was assigned, before and after the lead generated them.
    n_answered: the number of updates, not weighted. tried_at: the number of the back's last trial.
    """

    id: str
    name: str
    hello: Hello
    transport: Transport
    peer: str
    connected_at: float
    last_seen: float
    draft_limits: DraftLimits
    is_local: bool = False
    changed: Broadcast = field(default_factory=Broadcast)
    n_updates: float = 1.0
    n_right: float = 1.0
    n_in_time: float = 0.0
    n_late: float = 0.0
    n_answered: int = 0
    tried_at: int = 0  # the number of its last trial
    followed: dict[str, Following] = field(default_factory=dict)
    n_asked: int = 0  # the number of sequences that it is asked for; set by `Assignment`
    tune_sent: Tune | None = None
    tune_arrived: Tune | None = None
    n_replies: int = 0

    def __str__(self) -> str:
        return f"{self.name} ({one_line(self.hello.vocabulary.model)}, {self.transport})"

    @property
    def stats(self) -> BackStats:
        return self.draft_limits.stats

    @property
    def gain(self) -> float:
        """The recent number of right tokens per update."""
        return self.n_right / max(1.0, self.n_updates)

    @property
    def value(self) -> float | None:
        """The expected number of right tokens gained by one more draft token; None: unknown.

        It is the probability p of a right token with which, on average, `gain` tokens in a row are right:
        gain = p / (1 - p).
        """
        return self.gain / (1 + self.gain) if self.is_proven else None

    @property
    def is_proven(self) -> bool:
        return self.n_answered >= TRIAL_UPDATES

    def begin_trial(self, number: int) -> None:
        self.tried_at = number
        if not self.is_proven:
            self.n_updates = self.n_right = 0.0  # a trial begins without trust

    def credit(self, *, in_time: bool, is_chosen: bool) -> float:
        """Count a right token of the back; return its weight."""
        worth = 1.0 if in_time else self._late_weight
        self.n_right += worth
        if is_chosen:
            self.n_in_time = self.n_in_time * _LATENESS_DECAY + in_time
            self.n_late = self.n_late * _LATENESS_DECAY + (not in_time)
        return worth

    def count_update(self) -> None:
        self.n_updates = self.n_updates * _DECAY + 1
        self.n_right *= _DECAY
        self.n_answered += 1

    def ask(self, sequence: str) -> None:
        """Send the back the tokens of a sequence from now on."""
        self.followed.setdefault(sequence, Following())

    def has_opened(self, sequence: str) -> bool:
        """Return whether tokens of a sequence were sent to the back."""
        following = self.followed.get(sequence)
        return following is not None and following.n_sent > 0

    def end(self, sequence: str) -> None:
        """Record the end of a sequence; if the back has it open, its next updates close it."""
        if not self.has_opened(sequence):
            self.followed.pop(sequence, None)

    def updates(
        self,
        sequences: Sequences,
        asked: Callable[[str], Collection["Back"]],
        part: Callable[[str, "Back"], BranchPart | None],
        tune: Tune | None,
    ) -> list[LeadMessage]:
        """Return all messages since the last call; empty if there are no changes.

        asked, part: methods of `Assignment`.

        Tokens of sequences that the back is not asked for are sent only when it is asked again.
        """
        ended: list[LeadMessage] = []
        grown: list[LeadMessage] = []
        for sequence_id, following in list(self.followed.items()):
            sequence = sequences.get(sequence_id)
            if sequence is None:
                ended += self._close(sequence_id, following)
            elif self in asked(sequence_id):
                grown += following.unsent(sequence, part(sequence_id, self))
        return [*self._tune(tune), *ended, *grown]

    def acknowledge(self, reply: int | None) -> None:
        """Record that reply number `reply` was the last to arrive; later replies are sent again.

        None: the back does not number replies, and all count as arrived.
        """
        if reply in {None, self.n_replies}:
            self.tune_arrived = self.tune_sent
            for following in self.followed.values():
                following.n_arrived = following.n_sent
        else:
            self.tune_sent = self.tune_arrived
            for following in self.followed.values():
                following.n_sent = following.n_arrived

    def number_reply(self) -> int:
        """Return the number of the next reply, counted from 1."""
        self.n_replies += 1
        return self.n_replies

    @property
    def _late_weight(self) -> float:
        """The weight of a right token that came too late; it falls with the share of such tokens.

        The engine waits for a back that is worth it, so the back's tokens come in time. A back whose tokens
        stay late is not worth a wait: it may only repeat committed tokens.
        """
        in_time = _N_TRUSTED + self.n_in_time
        return _LATE_WEIGHT * in_time / (in_time + self.n_late)

    def _close(self, sequence_id: str, following: Following) -> list[Close]:
        was_open, following.n_sent = following.n_sent > 0, 0
        if not following.n_arrived:  # else the reply that closes it may be lost
            del self.followed[sequence_id]
        return [Close(sequence=sequence_id, reason="ended")] if was_open else []

    def _tune(self, tune: Tune | None) -> list[Tune]:
        """Return `tune` with the value of the back's drafts, if it was not sent yet."""
        if tune is None:
            return []
        told, value = self.tune_sent.value if self.tune_sent else None, self.value
        if value is not None and (told is None or abs(value - told) > _MIN_VALUE_CHANGE):
            told = round(value, 2)
        tune = tune.model_copy(update={"value": told})
        if tune == self.tune_sent:
            return []
        self.tune_sent = tune
        return [tune]


def _message_tokens(sequence: LiveSequence, start: int) -> list[int]:
    return sequence.tokens[start : start + MAX_TOKENS_PER_MESSAGE].tolist()
