"""Tuning of backs: how many tokens they draft ahead, and at which confidence they stop."""

import math
from collections.abc import Sequence

from lead.engine.commands import PolicyName
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from shared.protocol import Tune
from shared.step_cost import StepCost

_COST_SIZES = 8
"""The number of batch sizes among which to find the cheapest additional token."""


class BackTuning:
    """Computes the limits `n_ahead` and `min_confidence` of backs from the latest steps and T(n).

    `pop_change` returns the limits when they have changed.
    """

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self._constants = constants
        self._sent = constants.max_ahead, 0.0  # the defaults of backs
        self._recent_depth = 0.0
        self._n_tokens = self._seconds = 0.0
        self.n_ahead = constants.max_ahead
        self.min_confidence = 0.0
        self._is_pausing = False

    def reset(self, policy: PolicyName, depth: int) -> None:
        """Set the limits that `policy` needs before anything has been measured."""
        self._recent_depth = 0.0
        self.min_confidence = 0.0
        match policy:
            case "adaptive":
                self.n_ahead = self._constants.max_ahead
            case "fixed" | "sync":
                self.n_ahead = max(self._constants.max_ahead, depth)
            case "off":
                self.n_ahead = 0

    def pause(self) -> None:
        """Ask backs to send no drafts until `note_step` is called again."""
        self._is_pausing = True

    def note_step(self, depths: Sequence[int], n_committed: int, seconds: float) -> None:
        """Record a step that verified drafts of these lengths and committed `n_committed` tokens.

        seconds: the time of the step, waits included.
        """
        decay = self._constants.ahead_decay
        self._is_pausing = False
        self._recent_depth = max([self._recent_depth * decay, *depths])
        self._n_tokens = self._n_tokens * decay + n_committed
        self._seconds = self._seconds * decay + seconds

    def update(self, n_sequences: int, answer_seconds: float, cost: StepCost) -> None:
        """Set the limits so that backs draft for the step after the current one, and only tokens that will be
        verified.

        answer_seconds: the time from a commit to the slowest back's next draft; `n_ahead` includes the tokens
        that are committed in that time.
        """
        constants = self._constants
        rate = self._n_tokens / self._seconds if self._seconds else 0.0  # of all sequences together
        base = max(1, n_sequences)
        batch_sizes = range(base, base + _COST_SIZES)
        min_cost = min(cost.seconds(n + 1) - cost.seconds(n) for n in batch_sizes)
        n_under_way = math.ceil(rate / base * answer_seconds)
        n_wanted = 2 * round(self._recent_depth) + constants.spare_ahead
        n_ahead = min(constants.max_ahead, n_wanted + n_under_way)
        worthwhile = max(0.0, constants.confidence_share * rate * min_cost)
        min_confidence = min(constants.max_min_confidence, worthwhile)
        change = abs(min_confidence - self.min_confidence)
        if n_ahead != self.n_ahead or change > constants.min_confidence_change:
            self.n_ahead, self.min_confidence = n_ahead, min_confidence

    def pop_change(self) -> Tune | None:
        """Return the limits to send to backs, if they have changed since the last call."""
        limits = 0 if self._is_pausing else self.n_ahead, self.min_confidence
        if limits == self._sent:
            return None
        self._sent = limits
        return Tune(n_ahead=limits[0], min_confidence=limits[1])
