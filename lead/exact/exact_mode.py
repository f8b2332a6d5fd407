"""The result of setting up exact mode, and the guarantee for texts as a sentence."""

from pydantic import BaseModel

from lead.engine.events import EXACT_SAMPLE, Exactness
from shared.exact.batch_invariance import InvariantSizes

EXACT = "bit-identical text on every run"
_ENOUGH_DRAFT = 8
"""Longer drafts seldom pay."""


class ExactMode(BaseModel, frozen=True):
    """The state of exact mode, which is on if `batch_sizes` are in force.

    cost: the ratio of T(1) in exact mode to T(1) without it; None: not measured, and `reason` says why. key:
    identifies the start that measured the cost (`shared.llama.start_key`).
    """

    batch_sizes: InvariantSizes | None = None
    cost: float | None = None
    reason: str = ""
    key: str = ""

    @property
    def is_on(self) -> bool:
        return self.batch_sizes is not None

    @property
    def guarantee(self) -> str:
        """The guarantee as a sentence, for the log, `GET /props`, the page and `doctor`."""
        if not self.is_on:
            return f"{EXACT_SAMPLE}. For {EXACT}, add --exact{self._offer}"
        return f"{EXACT_SAMPLE}. --exact gives {EXACT} ({self._price})"

    @property
    def _offer(self) -> str:
        if self.cost is None:
            return f" (not measured: {self.reason})"
        return f" (a step with one token then takes {self.cost:.2f} times as long here)"

    @property
    def _price(self) -> str:
        words = (
            f"its cost was not measured: {self.reason}"
            if self.cost is None
            else f"a step with one token takes {self.cost:.2f} times as long"
        )
        if self.batch_sizes and self.batch_sizes.max_draft < _ENOUGH_DRAFT:
            return f"{words}; drafts have at most {self.batch_sizes.max_draft} tokens"
        return words

    def exactness(self) -> Exactness:
        """Return the event for the front, which it also gives the next engine process."""
        found = self.model_dump(mode="json")
        return Exactness(is_on=self.is_on, cost=self.cost, guarantee=self.guarantee, found=found)

    @classmethod
    def of(cls, exactness: Exactness | None) -> "ExactMode | None":
        """Return the state that an earlier process has reported; None: there is none."""
        return cls.model_validate(exactness.found) if exactness else None
