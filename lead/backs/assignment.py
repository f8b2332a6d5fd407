"""Which backs are asked to draft for which sequences.

An update to a back and its answer take CPU time that the engine could use, so a sequence's tokens go to the
few backs that draft it best. The others are tried in turn. The engine says how much of what a back drafted
was right. Knows neither messages nor transports; times are seconds of one clock.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shared.pace import Bucket

MOST_ASKED = 4
"""Backs for one sequence, not counting one on trial. More would agree with the best, or be worse."""
UPDATE_SECONDS = 0.25e-3
"""CPU time of the lead's processes for an update to a back and a draft in reply: `bench backs` at dbf6226."""
TRIAL_UPDATES = 16
"""The updates in a row that make one trial."""
_COST_SHARE, _TRIAL_SHARE = 0.03, 0.01
"""The share of a step's time for updates to the backs that are asked, and of all time for those on trial."""
_LEAST_GAIN = 0.02
"""Right tokens per update; a back with fewer is worth no verification."""
_DECAY = 0.95
"""What a back's record keeps with each update: its last 20 count most."""
_LATE_WEIGHT = 0.5
"""What a right token counts that arrived after the lead's own, if all of its back's others came in time."""
_N_TRUSTED = 8.0
"""Right tokens that a new back is taken to have sent in time: what it is late with at first is forgiven."""
_LATENESS_DECAY = 0.99
"""Per right token, of how many came in time and how many late: the last 100 count most."""
_PROMOTING = 3
"""Right tokens with which a trial ends early if another back is wanted."""
_INCUMBENT = 1.25
"""By this factor another back must be better to replace one that is asked: it has to read the text first."""
_REVIEW_STEPS = 16
_MOST_REVIEWED = 16
"""Sequences for which backs are chosen when one joins or is free again; many may be waiting for a slot."""
_FIRST_STEP_SECONDS, _STEP_GAIN = 0.05, 0.1


@dataclass(slots=True)
class _BackRecord:
    """`sequences`: those that it follows, also if it is not asked now; `asked` is a part of them.

    n_updates, n_right: weighted by age; they begin with one update answered by one right token. n_in_time,
    n_late: of its right tokens while it was chosen, those that came before the lead's own, and the others.
    """

    name: str
    max_sequences: int
    n_updates: float = 1.0
    n_right: float = 1.0
    n_in_time: float = 0.0
    n_late: float = 0.0
    n_answered: int = 0
    tried_at: int = 0
    sequences: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)

    @property
    def gain(self) -> float:
        """Right tokens per update."""
        return self.n_right / max(1.0, self.n_updates)

    @property
    def late_weight(self) -> float:
        """What a right token counts that came too late: less, the more of them did.

        The engine waits for a back that is worth it, so its tokens come in time. A back whose tokens stay
        late is not worth a wait: it may only repeat what it was told.
        """
        in_time = _N_TRUSTED + self.n_in_time
        return _LATE_WEIGHT * in_time / (in_time + self.n_late)

    @property
    def is_proven(self) -> bool:
        return self.n_answered >= TRIAL_UPDATES

    def has_room(self, sequence: str) -> bool:
        return sequence in self.sequences or len(self.sequences) < self.max_sequences

    def ask(self, sequence: str, *, asked: bool) -> None:
        if asked:
            self.asked.add(sequence)
            self.sequences.add(sequence)
        else:
            self.asked.discard(sequence)

    def begin_trial(self, number: int) -> None:
        self.tried_at = number
        if not self.is_proven:
            self.n_updates = self.n_right = 0.0  # a trial begins without trust

    def credit(self, *, in_time: bool, is_chosen: bool) -> float:
        """It had a right token. Returns what the token counts."""
        worth = 1.0 if in_time else self.late_weight
        self.n_right += worth
        if is_chosen:
            self.n_in_time = self.n_in_time * _LATENESS_DECAY + in_time
            self.n_late = self.n_late * _LATENESS_DECAY + (not in_time)
        return worth

    def count_update(self) -> None:
        self.n_updates = self.n_updates * _DECAY + 1
        self.n_right *= _DECAY
        self.n_answered += 1


@dataclass(slots=True)
class _AskedBacks:
    """The backs that are asked for a sequence. The trial ends after `n_left` more updates."""

    chosen: list[str] = field(default_factory=list)
    trial: str | None = None
    n_left: int = 0
    trial_right: float = 0.0
    n_steps: int = 0
    last_step: float | None = None

    @property
    def asked(self) -> list[str]:
        return [*self.chosen, self.trial] if self.trial else self.chosen

    @property
    def has_passed(self) -> bool:
        return self.trial_right >= _PROMOTING


class Assignment:
    """Backs are known by their names."""

    def __init__(self, now: float) -> None:
        self._backs: dict[str, _BackRecord] = {}
        self._sequences: dict[str, _AskedBacks] = {}
        self._trials = Bucket(_TRIAL_SHARE / UPDATE_SECONDS, 4 * TRIAL_UPDATES, now)
        self._n_trials = 0
        self._step_seconds = _FIRST_STEP_SECONDS

    def join(self, back: str, max_sequences: int, now: float) -> None:
        """A back is connected; it drafts for at most `max_sequences` at the same time."""
        self._backs[back] = _BackRecord(back, max_sequences)
        self._review_wanting(now)

    def leave(self, back: str, now: float) -> None:
        """A back is not connected any more."""
        del self._backs[back]
        for asked_backs in self._sequences.values():
            asked_backs.chosen = [each for each in asked_backs.chosen if each != back]
            asked_backs.trial = None if asked_backs.trial == back else asked_backs.trial
        self._review_wanting(now)

    def open(self, sequence: str, now: float) -> None:
        """A sequence begins that backs may draft for."""
        self._sequences[sequence] = _AskedBacks()
        self._review(sequence, now)

    def close(self, sequence: str, now: float) -> None:
        """A sequence has ended; one that was not opened is ignored."""
        if self._sequences.pop(sequence, None) is None:
            return
        for back in self._backs.values():
            back.sequences.discard(sequence)
            back.asked.discard(sequence)
        self._review_wanting(now)

    def asked(self, back: str) -> Collection[str]:
        """The sequences whose tokens a back gets now."""
        record = self._backs.get(back)
        return record.asked if record else ()

    def backs(self, sequence: str) -> Sequence[str]:
        """Those that get the tokens of a sequence now."""
        asked_backs = self._sequences.get(sequence)
        return asked_backs.asked if asked_backs else ()

    def followers(self, sequence: str) -> Iterator[str]:
        """Those that have ever been asked for a sequence."""
        return (back.name for back in self._backs.values() if sequence in back.sequences)

    def gain(self, back: str) -> float:
        """Right tokens per update, of late."""
        return self._backs[back].gain

    def value(self, back: str) -> float | None:
        """The value of one more draft token, in tokens of the text; None before it is known.

        `gain` tokens in a row are right on average if each is with this probability.
        """
        record = self._backs[back]
        return record.gain / (1 + record.gain) if record.is_proven else None

    def on_step(self, sequence: str, n_right: Mapping[str, tuple[int, int]], now: float) -> None:
        """A sequence has grown; the backs that are asked get its tokens now.

        n_right: by back, how many tokens it had right in time and too late (`Committed.n_right`).
        """
        asked_backs = self._sequences.get(sequence)
        if asked_backs is None:
            return
        for name, (n_in_time, n_late) in n_right.items():
            if record := self._backs.get(name):
                self._credit(record, asked_backs, n_in_time, n_late)
        self._learn_step(asked_backs, now)
        for back in asked_backs.asked:
            self._backs[back].count_update()
        asked_backs.n_left -= 1
        asked_backs.n_steps += 1
        if self._is_review_due(asked_backs):
            self._review(sequence, now)

    def check_integrity(self) -> None:
        """Raise AssertionError unless all records agree."""
        for back in self._backs.values():
            asked = {name for name, each in self._sequences.items() if back.name in each.asked}
            assert back.asked == asked <= back.sequences <= set(self._sequences), back
            assert len(back.sequences) <= back.max_sequences, back

    def _credit(self, back: _BackRecord, asked_backs: _AskedBacks, n_in_time: int, n_late: int) -> None:
        for i in range(n_in_time + n_late):
            worth = back.credit(in_time=i < n_in_time, is_chosen=back.name in asked_backs.chosen)
            if back.name == asked_backs.trial:
                asked_backs.trial_right += worth

    def _learn_step(self, asked_backs: _AskedBacks, now: float) -> None:
        if asked_backs.last_step is not None:
            self._step_seconds += _STEP_GAIN * (now - asked_backs.last_step - self._step_seconds)
        asked_backs.last_step = now

    def _is_review_due(self, asked_backs: _AskedBacks) -> bool:
        if asked_backs.trial is None:
            n = asked_backs.n_steps
            return n % _REVIEW_STEPS == 0 or (not asked_backs.chosen and n.bit_count() == 1)
        wanted = len(asked_backs.chosen) < self._n_places
        return asked_backs.n_left <= 0 or (wanted and asked_backs.has_passed)

    def _review_wanting(self, now: float) -> None:
        """The oldest sequences that have fewer backs than they might."""
        wanting = (name for name, each in self._sequences.items() if len(each.chosen) < self._n_places)
        for sequence in list(itertools.islice(wanting, _MOST_REVIEWED)):
            self._review(sequence, now)

    def _review(self, sequence: str, now: float) -> None:
        """Choose again who is asked for a sequence."""
        asked_backs = self._sequences[sequence]
        before = asked_backs.asked
        ready = [back for back in self._backs.values() if back.has_room(sequence)]
        asked_backs.chosen = [back.name for back in self._best(ready, asked_backs)]
        if asked_backs.trial is None or asked_backs.n_left <= 0 or asked_backs.trial in asked_backs.chosen:
            self._begin_trial(asked_backs, ready, now)
        for name in {*before, *asked_backs.asked} & self._backs.keys():
            self._backs[name].ask(sequence, asked=name in asked_backs.asked)

    @property
    def _n_places(self) -> int:
        n = int(_COST_SHARE * self._step_seconds / UPDATE_SECONDS)
        return min(max(1, n), MOST_ASKED)

    def _best(self, ready: Sequence[_BackRecord], asked_backs: _AskedBacks) -> list[_BackRecord]:
        """Those worth their updates, the best first."""
        worth = max(_LEAST_GAIN, UPDATE_SECONDS / self._step_seconds)
        good = [back for back in ready if back.gain >= worth and self._is_known(back, asked_backs)]

        def rank(back: _BackRecord) -> tuple[bool, float]:
            is_asked, stays = back.name in asked_backs.asked, back.name in asked_backs.chosen
            n_others = len(back.asked) - is_asked
            return back.is_proven, back.gain * (_INCUMBENT if stays else 1) / (1 + n_others)

        return sorted(good, key=rank, reverse=True)[: self._n_places]

    def _is_known(self, back: _BackRecord, asked_backs: _AskedBacks) -> bool:
        """Whether it may be chosen without a trial: among few backs there is no choice to make."""
        if back.name == asked_backs.trial and asked_backs.has_passed:
            return True
        return back.is_proven or back.name in asked_backs.chosen or len(self._backs) <= MOST_ASKED

    def _begin_trial(self, asked_backs: _AskedBacks, ready: Sequence[_BackRecord], now: float) -> None:
        """Try the back whose last trial is the longest ago, or that has had none."""
        asked_backs.trial = None
        others = [back for back in ready if back.name not in asked_backs.chosen]
        if others and self._trials.take(now, TRIAL_UPDATES):
            self._n_trials += 1
            back = min(others, key=lambda each: each.tried_at)
            back.begin_trial(self._n_trials)
            asked_backs.trial, asked_backs.n_left, asked_backs.trial_right = back.name, TRIAL_UPDATES, 0.0
