"""The planner: learns what steps cost, how often drafts are right and when they come; its policy chooses."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from lead.engine.commands import PolicyName
from lead.engine.events import Tuned
from lead.engine.speculation.acceptance import Acceptance
from lead.engine.speculation.arrivals import Arrivals
from lead.engine.speculation.batching import Batching
from lead.engine.speculation.policy import Adaptive, Choice, Fixed, Off, Offer, Policy, Sync
from lead.engine.speculation.step_cost import StepCost
from lead.engine.speculation.tally import Tally

_TUNE_EVERY = 16
"""Steps between two looks at what backs should do."""
_MOST_AHEAD = 16
_LEAST_AHEAD = 2
"""A source that is of no use keeps drafting this much, so that it is noticed when it gets better."""
_SPARE = 2
_MOST_MIN_CONFIDENCE = 0.3
_CAUTION = 0.5
"""Backs stop at this part of what the lead would still take: they do not know how right they are."""
_CHANGED = 0.05
_FORGETS_DEPTH = 0.98
"""Per step: how fast the largest depth of late is forgotten."""


class Step(NamedTuple):
    """A step with `n_tokens` in its batch took `seconds`; it verified drafts of `depths` tokens.

    Of `expected` tokens it committed `n_committed`; `expected` is None with prompts in the batch.
    """

    n_tokens: int
    seconds: float
    depths: Sequence[int]
    n_committed: int
    expected: float | None


class Planner:
    """Owns what has been learned; `policy` may be exchanged at any time without losing it."""

    def __init__(self, policy: PolicyName, depth: int, batching: Batching | None = None) -> None:
        self.cost = StepCost()
        self.acceptance = Acceptance()
        self.arrivals = Arrivals()
        self.tally = Tally()
        self._adaptive = Adaptive(batching)
        self._waited = 0.0
        self._told = Tuned(n_ahead=_MOST_AHEAD, min_confidence=0.0)  # what backs do unasked, or less
        self.set_policy(policy, depth)

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Choose in another way from now on; `depth` is for `fixed` and `sync`."""
        self.name: PolicyName = policy
        self.depth = depth
        self._policy = self._make(policy, depth)
        self.n_ahead = _n_ahead(policy, depth)
        self.min_confidence = 0.0
        self._recent_depth = 0.0

    def choose(self, offers: Sequence[Offer], n_prompt: int) -> Choice:
        """For the next step."""
        return self._policy.choose(offers, n_prompt, self.cost)

    def learn_wait(self, seconds: float) -> None:
        """The engine waited for drafts."""
        self.tally.wait_seconds += seconds
        self._waited += seconds

    def learn_step(self, step: Step) -> None:
        """A step is over."""
        tally = self.tally
        expected_seconds = self.cost.seconds(step.n_tokens)
        self.cost.learn(step.n_tokens, step.seconds)
        if step.expected is not None:
            tally.expected_tokens += step.expected
            tally.expected_seconds += expected_seconds + self._waited
            tally.actual_tokens += step.n_committed
            tally.actual_seconds += step.seconds + self._waited
            self._policy.learn(len(step.depths), step.n_committed, step.seconds + self._waited, self.cost)
        self._waited = 0.0
        tally.n_steps += 1
        tally.step_seconds += step.seconds
        tally.depths.update(step.depths)
        self._recent_depth = max([self._recent_depth * _FORGETS_DEPTH, *step.depths])
        if self.name == "adaptive" and tally.n_steps % _TUNE_EVERY == 0:
            self._tune(len(step.depths))

    def take_tuned(self) -> Tuned | None:
        """What backs should be told, if that has changed since the last call."""
        tuned = Tuned(n_ahead=self.n_ahead, min_confidence=self.min_confidence)
        if tuned == self._told:
            return None
        self._told = tuned
        return tuned

    def describe(self) -> dict[str, Any]:
        """Why it decides as it does: for people and dashboards."""
        return {
            "policy": self.name,
            "depth": self.depth,
            "n_ahead": self.n_ahead,
            "min_confidence": round(self.min_confidence, 3),
            "step_ms": {str(n): round(1000 * seconds, 3) for n, seconds in self.cost.table().items()},
            **self.tally.describe(),
            "sources": {
                source: {**self.acceptance.describe(source), **self.arrivals.describe(source)}
                for source in sorted({*self.acceptance.sources, *self.arrivals.known})
            },
        }

    def _tune(self, n_sequences: int) -> None:
        """Far enough ahead for the step after the one under way, and no further than would be taken.

        Besides, a far back is always behind by what is committed until its answer is there.
        """
        tally = self.tally
        base = max(1, n_sequences)
        least_cost = min(self.cost.seconds(base + n + 1) - self.cost.seconds(base + n) for n in range(8))
        seconds = tally.step_seconds + tally.wait_seconds
        rate = tally.n_committed / seconds if seconds > 0 else 0.0
        n_under_way = math.ceil(rate / base * self.arrivals.slowest_first)
        n_ahead = min(_MOST_AHEAD, max(_LEAST_AHEAD, 2 * round(self._recent_depth) + _SPARE) + n_under_way)
        min_confidence = min(_MOST_MIN_CONFIDENCE, max(0.0, _CAUTION * rate * least_cost))
        if n_ahead != self.n_ahead or abs(min_confidence - self.min_confidence) > _CHANGED:
            self.n_ahead, self.min_confidence = n_ahead, min_confidence

    def _make(self, policy: PolicyName, depth: int) -> Policy:
        match policy:
            case "adaptive":
                return self._adaptive
            case "fixed":
                return Fixed(depth)
            case "sync":
                return Sync(depth)
            case "off":
                return Off()


def _n_ahead(policy: PolicyName, depth: int) -> int:
    """What backs are asked for before anything else is known."""
    match policy:
        case "adaptive":
            return _MOST_AHEAD
        case "fixed" | "sync":
            return max(_MOST_AHEAD, depth)
        case "off":
            return 0
