"""Statistics of speculation since the engine was started: sums over all steps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lead.engine.events import Committed


class StepReport(NamedTuple):
    """A step with `n_tokens` tokens in its batch, which took `seconds` and ended at `ended_at`.

    depths: the lengths of the verified drafts. n_committed: the number of committed tokens. n_expected: the
    number that was expected; None with prompts in the batch. n_passes: passes over the weights.
    """

    n_tokens: int
    seconds: float
    depths: Sequence[int]
    n_committed: int
    n_expected: float | None
    n_passes: int = 1
    ended_at: float = 0.0


@dataclass(slots=True)
class SpeculationStats:
    """The totals of all steps, with times in seconds. Expected and actual values cover steps without prompts.

    Only the manager writes them.
    """

    n_steps: int = 0
    step_seconds: float = 0.0
    wait_seconds: float = 0.0
    draft_seconds: float = 0.0
    n_committed: int = 0
    n_draft_tokens: int = 0
    n_accepted_tokens: int = 0
    n_recovered: int = 0
    n_covered: int = 0
    depths: Counter[int] = field(default_factory=Counter)
    expected_tokens: float = 0.0
    expected_seconds: float = 0.0
    actual_tokens: int = 0
    actual_seconds: float = 0.0

    def add_committed(self, committed: Committed, *, covered: bool) -> None:
        """Count one sequence's part of a step.

        covered: after a rejection, a draft of a back or of the inline drafter was still alive.
        """
        self.n_committed += len(committed.tokens)
        self.n_draft_tokens += committed.n_drafted
        self.n_accepted_tokens += committed.n_accepted
        if committed.rejected:
            self.n_recovered += 1
            self.n_covered += covered

    def add_step(self, step: StepReport, expected_seconds: float, waited: float) -> None:
        """Count a step. waited: the seconds for which the engine waited for drafts before the step."""
        if step.n_expected is not None:
            self.expected_tokens += step.n_expected
            self.expected_seconds += expected_seconds + waited
            self.actual_tokens += step.n_committed
            self.actual_seconds += step.seconds + waited
        self.n_steps += 1
        self.step_seconds += step.seconds
        self.depths.update(step.depths)

    def describe(self) -> dict[str, Any]:
        """Return the statistics as a record for `GET /v1/speculation`."""
        return {
            "n_steps": self.n_steps,
            "step_seconds": round(self.step_seconds, 6),
            "wait_seconds": round(self.wait_seconds, 6),
            "draft_seconds": round(self.draft_seconds, 6),
            "n_committed": self.n_committed,
            "n_draft_tokens": self.n_draft_tokens,
            "n_accepted_tokens": self.n_accepted_tokens,
            "n_wasted_tokens": self.n_draft_tokens - self.n_accepted_tokens,
            "n_recovered": self.n_recovered,
            "n_covered": self.n_covered,
            "depths": {str(depth): n for depth, n in sorted(self.depths.items())},
            "predicted_tokens_per_second": _rate(self.expected_tokens, self.expected_seconds),
            "actual_tokens_per_second": _rate(self.actual_tokens, self.actual_seconds),
        }


def _rate(tokens: float, seconds: float) -> float | None:
    return round(tokens / seconds, 3) if seconds > 0 else None
