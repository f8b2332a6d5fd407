"""Counts what became of the requests of a run, and keeps those that went wrong."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.faults.answers import Answer, invalid_parts
from bench.faults.asking import Outcome


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that went wrong, and how: the fields that differ, `lost`, `unterminated`."""

    outcome: Outcome
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Judges outcomes by the answers of a run without faults, by index of the request."""

    expected: Mapping[int, Answer]
    exact: bool = False
    """Whether log-probabilities have to be the same, too."""
    n_requests: int = 0
    n_tokens: int = 0
    n_left: int = 0
    """Clients that hung up, as planned."""
    n_changed: int = 0
    n_lost: int = 0
    n_unterminated: int = 0
    longest_pause: float = 0.0
    """Seconds between two events of a stream."""
    longest_answer: float = 0.0
    """Seconds, with all attempts."""
    errors: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.n_requests += 1
        self.n_tokens += outcome.answer.n_generated or 0
        self.n_left += outcome.left
        self.kinds[outcome.request.kind] += 1
        self.errors.update(outcome.errors)
        self.longest_pause = max(self.longest_pause, outcome.longest_pause)
        self.longest_answer = max(self.longest_answer, outcome.ended - outcome.began)
        changed = self._changes(outcome)
        self.n_changed += bool(changed)
        self.n_lost += outcome.lost
        self.n_unterminated += outcome.unterminated
        reasons = [*changed, *["lost"] * outcome.lost, *["unterminated"] * outcome.unterminated]
        if reasons:
            self.failures.append(Failure(outcome, tuple(reasons)))

    def _changes(self, outcome: Outcome) -> list[str]:
        answer, expected = outcome.answer, self.expected[outcome.request.index]
        if answer.done:
            return [*answer.differences(expected, exact=self.exact), *invalid_parts(answer, outcome.request)]
        return [] if answer.begins(expected) else ["beginning"]
