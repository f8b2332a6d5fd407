"""A connected back: its identity, the accuracy of its drafts, and what it has received of each sequence.

Updates are computed from cursors when they are sent: a back that is slow or disconnected costs no memory, and
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
"""How many updates in a row make one trial; after that many a back's gain is known."""
_DECAY = 0.95
"""The factor on the counts of updates and right tokens with each update: the last 20 updates count most."""
_LATE_WEIGHT = 0.5
"""What a right token counts that arrived after the lead's own, if all of its back's others came in time."""
_N_TRUSTED = 8.0
"""Right tokens that a new back is taken to have sent in time: what it is late with at first is forgiven."""
_LATENESS_DECAY = 0.99
"""Per right token, of how many came in time and how many late: the last 100 count most."""
_MIN_VALUE_CHANGE = 0.15
"""Smaller changes of what its drafts are worth are not sent to a back, which would divide its time anew."""


@dataclass(slots=True)
class Following:
    """How much of a sequence a back has received.

    n_sent: the number of tokens sent to it; n_arrived: that number when the last acknowledged reply was sent.
    While n_sent is 0, the sequence is not open for the back.
    """

    n_sent: int = 0
    n_arrived: int = 0

    def unsent(self, sequence: LiveSequence, part: BranchPart | None) -> list[LeadMessage]:
        """Messages with all tokens not sent yet, which then count as sent."""
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

    `peer` identifies the sender: see `JoinLimits`. `is_local`: it runs on this machine. `changed` is notified
    when there are updates, or when the back has been removed. `followed`: by sequence; includes sequences
    that it is not asked for at present, and ended ones that are still to be closed.

    n_updates, n_right: weighted by age; they start with one update answered by one right token. n_in_time,
    n_late: its right tokens while it was assigned, drafted before the lead generated them or after.
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
    n_asked: int = 0  # for how many sequences; counted by `Assignment`
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
        """Recent right tokens per update."""
        return self.n_right / max(1.0, self.n_updates)

    @property
    def value(self) -> float | None:
        """The expected number of right tokens gained by one more draft token; None while unknown.

        Chosen so that `gain` tokens in a row are right on average, if each is with this probability.
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
        """Count a right token of the back; returns its weight."""
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
        """Whether the back was sent any tokens of a sequence."""
        following = self.followed.get(sequence)
        return following is not None and following.n_sent > 0

    def end(self, sequence: str) -> None:
        """Record the end of a sequence; if it was opened for the back, the next updates close it."""
        if not self.has_opened(sequence):
            self.followed.pop(sequence, None)

    def updates(
        self,
        sequences: Sequences,
        asked: Callable[[str], Collection["Back"]],
        part: Callable[[str, "Back"], BranchPart | None],
        tune: Tune | None,
    ) -> list[LeadMessage]:
        """All messages since the last call; empty if nothing has changed. asked, part: as of `Assignment`.

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

        None: the back does not number them, and all count as arrived.
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
        """The number of the next reply, counted from 1."""
        self.n_replies += 1
        return self.n_replies

    @property
    def _late_weight(self) -> float:
        """What a right token counts that came too late: less, the more of them did.

        The engine waits for a back that is worth it, so its tokens come in time. A back whose tokens stay
        late is not worth a wait: it may only repeat what it was told.
        """
        in_time = _N_TRUSTED + self.n_in_time
        return _LATE_WEIGHT * in_time / (in_time + self.n_late)

    def _close(self, sequence_id: str, following: Following) -> list[Close]:
        was_open, following.n_sent = following.n_sent > 0, 0
        if not following.n_arrived:  # else the reply that closes it may be lost
            del self.followed[sequence_id]
        return [Close(sequence=sequence_id, reason="ended")] if was_open else []

    def _tune(self, tune: Tune | None) -> list[Tune]:
        """`tune` with what its drafts are worth, if it was not sent yet."""
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
