"""Assigns backs to the sequences that they draft for.

An update to a back and its reply take CPU time that the engine could use. So a sequence's tokens go only to
the few backs that draft best for it; the other backs are tried in turn. The engine reports which draft tokens
of a back were right. Times are in seconds of one clock.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lead.backs.back import TRIAL_UPDATES, Back
from shared.protocol import BranchPart
from shared.rate_limit import Bucket

MAX_ASKED = 4
"""The maximum number of backs for a sequence, not counting a back on trial. More would only agree with the
best, or be worse."""
UPDATE_SECONDS = 0.25e-3
"""CPU time of the lead's processes for an update and the draft in reply (`bench backs`)."""
_COST_SHARE, _TRIAL_SHARE = 0.03, 0.01
"""The maximum share of a step's time for updates to chosen backs, and of all time for updates to backs on
trial."""
_MIN_GAIN = 0.02
"""A back with fewer right tokens per update is not chosen."""
_PROMOTING = 3
"""The number of right tokens after which a trial ends early if the sequence may have another back."""
_INCUMBENT = 1.25
"""To replace a chosen back, another back must be better by this factor, because it must read the text
first.
"""
_PART_GAIN = 0.5
"""A back whose gain is at least this share of the best back's gain gets a part of the side branches."""
_REVIEW_STEPS = 16
_MAX_REVIEWED = 16
"""The maximum number of sequences for which backs are chosen when a back joins or becomes free."""
_FIRST_STEP_SECONDS, _STEP_GAIN = 0.05, 0.1


@dataclass(slots=True)
class _AskedBacks:
    """The backs that draft for a sequence. The back on trial is among them for `n_left` more updates."""

    asked: list[Back] = field(default_factory=list)
    trial: Back | None = None
    n_left: int = 0
    trial_right: float = 0.0
    n_steps: int = 0

    @property
    def n_chosen(self) -> int:
        """The number of backs, not counting the back on trial."""
        return len(self.asked) - (self.trial is not None)

    def has_chosen(self, back: Back) -> bool:
        return back is not self.trial and back in self.asked

    @property
    def has_passed(self) -> bool:
        return self.trial_right >= _PROMOTING


def division(n: int) -> list[BranchPart | None]:
    """Return the parts of the side branches for `n` backs, the best back first; None: all branches.

    The best back drafts all side branches. If it left some to others, four backs would be slower than one
    back on hardware where T(n) rises, because the back that drafted the committed side branch is not always
    the back that is furthest ahead.
    """
    return [BranchPart(index=i, of=n) if i else None for i in range(n)]


class Assignment:
    """Chooses the backs that draft for each sequence.

    `Back.followed` has the sequences that a back has received. Gains are right tokens per update
    (`Back.gain`). The time of a step is a mean of measured times.
    """

    def __init__(self, now: float) -> None:
        self.backs: dict[str, Back] = {}
        """The connected backs by their names."""
        self._sequences: dict[str, _AskedBacks] = {}
        self._trials = Bucket(_TRIAL_SHARE / UPDATE_SECONDS, 4 * TRIAL_UPDATES, now)
        self._n_trials = 0
        self._step_seconds = _FIRST_STEP_SECONDS

    def join(self, back: Back, now: float) -> None:
        """Add a back that has connected."""
        self.backs[back.name] = back
        self._review_wanting(now)

    def leave(self, back: Back, now: float) -> None:
        """Remove a back that has disconnected."""
        del self.backs[back.name]
        for asked_backs in self._sequences.values():
            asked_backs.asked = [each for each in asked_backs.asked if each is not back]
            asked_backs.trial = None if asked_backs.trial is back else asked_backs.trial
        self._review_wanting(now)

    def open(self, sequence: str, now: float) -> None:
        """Add a sequence that backs may draft for."""
        self._sequences[sequence] = _AskedBacks()
        self._review(sequence, now)

    def close(self, sequence: str, now: float) -> None:
        """Remove a sequence that has ended; does nothing for a sequence that was not opened."""
        asked_backs = self._sequences.pop(sequence, None)
        if asked_backs is None:
            return
        for back in asked_backs.asked:
            back.n_asked -= 1
        for back in self.backs.values():
            back.end(sequence)
        self._review_wanting(now)

    def asked(self, sequence: str) -> Sequence[Back]:
        """Return the backs that currently get the tokens of a sequence."""
        asked_backs = self._sequences.get(sequence)
        return asked_backs.asked if asked_backs else ()

    def part(self, sequence: str, back: Back) -> BranchPart | None:
        """Return which side branches of a sequence `back` drafts first; None: all.

        The best back drafts all side branches. Other backs that are about as good divide them.
        """
        asked_backs = self._sequences.get(sequence)
        if asked_backs is None:
            return None
        # in the order in which they joined, which does not change
        chosen = [each for each in self.backs.values() if asked_backs.has_chosen(each)]
        best = max((each.gain for each in chosen), default=0.0)
        dividing = sorted(
            (each for each in chosen if each.gain >= _PART_GAIN * best),
            key=lambda each: each.gain * _INCUMBENT < best,
        )
        return division(len(dividing))[dividing.index(back)] if back in dividing else None

    def on_step(
        self, sequence: str, n_right: Mapping[str, tuple[int, int]], seconds: float | None, now: float
    ) -> None:
        """Record a step of a sequence, and choose the backs that get its tokens.

        n_right: by back, the numbers of right tokens in time and too late (`Committed.n_right`). seconds:
        since the previous step; None: there was none.
        """
        asked_backs = self._sequences.get(sequence)
        if asked_backs is None:
            return
        for name, (n_in_time, n_late) in n_right.items():
            if back := self.backs.get(name):
                self._credit(back, asked_backs, n_in_time, n_late)
        if seconds is not None:
            self._step_seconds += _STEP_GAIN * (seconds - self._step_seconds)
        for back in asked_backs.asked:
            back.count_update()
        asked_backs.n_left -= 1
        asked_backs.n_steps += 1
        if self._is_review_due(asked_backs):
            self._review(sequence, now)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the records of sequences and backs agree."""
        for back in self.backs.values():
            asked = {name for name, each in self._sequences.items() if back in each.asked}
            assert asked <= back.followed.keys(), back
            assert len(asked) == back.n_asked, back
            assert self._n_followed(back) <= back.hello.n_sequences, back

    def _credit(self, back: Back, asked_backs: _AskedBacks, n_in_time: int, n_late: int) -> None:
        is_chosen = asked_backs.has_chosen(back)
        for i in range(n_in_time + n_late):
            worth = back.credit(in_time=i < n_in_time, is_chosen=is_chosen)
            if back is asked_backs.trial:
                asked_backs.trial_right += worth

    def _is_review_due(self, asked_backs: _AskedBacks) -> bool:
        if asked_backs.trial is None:
            n = asked_backs.n_steps
            return n % _REVIEW_STEPS == 0 or (not asked_backs.asked and n.bit_count() == 1)
        wanted = asked_backs.n_chosen < self._n_places
        return asked_backs.n_left <= 0 or (wanted and asked_backs.has_passed)

    def _review_wanting(self, now: float) -> None:
        """Choose backs for the oldest sequences that have fewer backs than they may have."""
        wanting = (name for name, each in self._sequences.items() if each.n_chosen < self._n_places)
        for sequence in list(itertools.islice(wanting, _MAX_REVIEWED)):
            self._review(sequence, now)

    def _review(self, sequence: str, now: float) -> None:
        """Choose the backs of a sequence again."""
        asked_backs = self._sequences[sequence]
        before = asked_backs.asked
        ready = [back for back in self.backs.values() if self._may_follow(back, sequence)]
        chosen = self._best(ready, asked_backs)
        if asked_backs.trial is None or asked_backs.n_left <= 0 or asked_backs.trial in chosen:
            self._begin_trial(asked_backs, [back for back in ready if back not in chosen], now)
        asked_backs.asked = [*chosen, asked_backs.trial] if asked_backs.trial else chosen
        for back in before:
            back.n_asked -= 1
        for back in asked_backs.asked:
            back.n_asked += 1
            back.ask(sequence)

    def _may_follow(self, back: Back, sequence: str) -> bool:
        followed, maximum = back.followed, back.hello.n_sequences
        return sequence in followed or len(followed) < maximum or self._n_followed(back) < maximum

    def _n_followed(self, back: Back) -> int:
        """Return the number of a back's sequences that have not ended."""
        return len(back.followed.keys() & self._sequences.keys())

    @property
    def _n_places(self) -> int:
        n = int(_COST_SHARE * self._step_seconds / UPDATE_SECONDS)
        return min(max(1, n), MAX_ASKED)

    def _best(self, ready: Sequence[Back], asked_backs: _AskedBacks) -> list[Back]:
        """Return the backs that are worth their updates, best first."""
        worth = max(_MIN_GAIN, UPDATE_SECONDS / self._step_seconds)
        good = [back for back in ready if back.gain >= worth and self._is_known(back, asked_backs)]

        def rank(back: Back) -> tuple[bool, float]:
            n_others = back.n_asked - (back in asked_backs.asked)
            factor = _INCUMBENT if asked_backs.has_chosen(back) else 1
            return back.is_proven, back.gain * factor / (1 + n_others)

        return sorted(good, key=rank, reverse=True)[: self._n_places]

    def _is_known(self, back: Back, asked_backs: _AskedBacks) -> bool:
        """Return whether a back may be chosen without a trial. With few backs, each may be chosen so."""
        if back is asked_backs.trial and asked_backs.has_passed:
            return True
        return back.is_proven or asked_backs.has_chosen(back) or len(self.backs) <= MAX_ASKED

    def _begin_trial(self, asked_backs: _AskedBacks, others: Sequence[Back], now: float) -> None:
        """Try the back that was never tried, or whose last trial is the longest ago."""
        asked_backs.trial = None
        if others and self._trials.take(now, TRIAL_UPDATES):
            self._n_trials += 1
            back = min(others, key=lambda each: each.tried_at)
            back.begin_trial(self._n_trials)
            asked_backs.trial, asked_backs.n_left, asked_backs.trial_right = back, TRIAL_UPDATES, 0.0
