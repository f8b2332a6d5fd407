"""Which sequences the engine process is given, and what becomes of them when it dies.

A sequence needs nothing of the engine process that it ran in: its tokens are a function of seed, position and
the tokens before. So the next process gets it with all its tokens, and it goes on with the same text.

A sequence may kill each process that gets it. It must not take the others with it. What kills a process does
so at the same token again, so a death is counted against those that had hardly generated anything in that
process; and sequences against which two are counted are given to the next process one at a time, before all
others.
"""

import logging
from dataclasses import dataclass

from lead.engine.commands import Submit
from lead.engine.events import Committed
from lead.generation.sequences import LiveSequence, Sequences
from shared.errors import UnavailableError

log = logging.getLogger("lead")

_SUSPECT_DEATHS = 2
_SETTLED_TOKENS = 16
"""A sequence that generated as many tokens in an engine process is past what may have killed the last one."""


@dataclass(slots=True)
class _Submission:
    """A live sequence that an engine process was given; n_tokens: that it had then."""

    sequence: LiveSequence
    n_tokens: int = 0
    is_given: bool = False  # to the process that runs now
    n_deaths: int = 0  # of processes, counted against it

    @property
    def runs(self) -> bool:
        return self.is_given and self.sequence.slot is not None

    @property
    def has_settled(self) -> bool:
        return len(self.sequence.tokens) - self.n_tokens >= _SETTLED_TOKENS


class Submissions:
    """Gives the live sequences to one engine process after the other. Knows no process.

    An observer of `Sequences`.
    """

    def __init__(self, sequences: Sequences, max_restarts: int) -> None:
        """A sequence fails when more than `max_restarts` deaths are counted against it."""
        self._sequences = sequences
        self._max_restarts = max_restarts
        self._submissions: dict[str, _Submission] = {}
        self._suspect: _Submission | None = None  # given last, alone
        self.n_deaths = 0
        """Engine processes that have died."""
        self.n_resumed = 0
        """Sequences that had begun to run and were given to another process."""
        sequences.observe(self)

    @property
    def holds_back(self) -> bool:
        """Whether sequences wait until it is clear that another one does not kill the engine process."""
        return self._suspect is not None

    def take_due(self) -> list[Submit]:
        """What the engine process is to be given now; to be asked again when there may be more."""
        due = self._due()
        for each in due:
            each.is_given, each.n_tokens = True, len(each.sequence.tokens)
        return [each.sequence.submission() for each in due]

    def on_death(self) -> bool:
        """The engine process is gone; returns whether it had a sequence in a slot."""
        given = [each for each in self._submissions.values() if each.is_given]
        running = [each for each in given if each.runs]
        self.n_deaths += 1
        for each in _to_blame(given, running):
            each.n_deaths += 1
            if each.n_deaths > self._max_restarts:
                self._give_up(each)
        self.n_resumed += sum(not each.sequence.ended for each in running)
        for each in given:
            each.is_given = False
        self._suspect = None
        self._sequences.leave_slots()
        return bool(running)

    def on_step(self, _sequence: LiveSequence, _step: Committed) -> None:
        """Nothing to do: the tokens are in the sequence."""

    def on_end(self, sequence: LiveSequence) -> None:
        """It needs no engine any more."""
        self._submissions.pop(sequence.id, None)

    def _due(self) -> list[_Submission]:
        if self._suspect and not (self._suspect.sequence.ended or self._suspect.has_settled):
            return []
        waiting = [each for each in map(self._submission, self._sequences) if not each.is_given]
        waiting.sort(key=_age)
        suspects = [each for each in waiting if each.n_deaths >= _SUSPECT_DEATHS]
        self._suspect = suspects[0] if suspects else None
        return suspects[:1] or waiting

    def _submission(self, sequence: LiveSequence) -> _Submission:
        return self._submissions.setdefault(sequence.id, _Submission(sequence))

    def _give_up(self, submission: _Submission) -> None:
        reason = f"the engine has died {submission.n_deaths} times while it worked on this request"
        log.error("sequence %s is given up: %s", submission.sequence.id, reason)
        self._sequences.fail(submission.sequence, UnavailableError(reason))


def _to_blame(given: list[_Submission], running: list[_Submission]) -> list[_Submission]:
    """Those that had just begun to run; if there are none, all that ran; if there are none, all."""
    return [each for each in running if not each.has_settled] or running or given


def _age(submission: _Submission) -> tuple[bool, float]:
    """Those that have started come first, in that order; then the others, as they were created."""
    started_at = submission.sequence.started_at
    return (started_at is None, submission.sequence.created_at if started_at is None else started_at)
