"""What the planner has done: sums over all steps since the engine was started."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Tally:
    """Times in seconds. Expectations are counted for steps without prompts only, beside what came of them."""

    n_steps: int = 0
    step_seconds: float = 0.0
    wait_seconds: float = 0.0
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

    def describe(self) -> dict[str, Any]:
        """For people and dashboards."""
        return {
            "n_steps": self.n_steps,
            "step_seconds": round(self.step_seconds, 6),
            "wait_seconds": round(self.wait_seconds, 6),
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
