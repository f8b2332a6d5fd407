"""The part of `GET /v1/speculation` that doctors read; other versions of the lead may report less or more."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NonNegative = Annotated[int, Field(ge=0, lt=1 << 53)]
"""What a float holds exactly: checks divide and multiply."""
_Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LeadInfo(_Record):
    """The lead itself; `cores` are those it may run on, `n_threads` are its engine's."""

    version: str | None = None
    protocol: int | None = None
    speculates: bool | None = None
    promise: str = ""  # what holds of its texts
    cores: frozenset[int] = frozenset()
    n_threads: NonNegative = 0


class BackReport(_Record):
    """A connected back and what came of its drafts."""

    name: str
    model: str = ""
    n_drafts: NonNegative = 0
    n_stale_drafts: NonNegative = 0
    n_invalid_drafts: NonNegative = 0


class SourceReport(_Record):
    """A source of drafts as the planner knows it, `ngram` among them. Times are None until measured."""

    n_scored: NonNegative = 0
    n_right: NonNegative = 0
    first_draft_ms: float | None = None
    token_ms: float | None = None


class PlannerReport(_Record):
    """`step_ms` is T(n) by n, `depths` how often each depth was chosen for a sequence."""

    policy: str = "adaptive"
    step_ms: dict[NonNegative, _Milliseconds] = {}
    n_steps: NonNegative = 0
    n_committed: NonNegative = 0
    n_draft_tokens: NonNegative = 0
    n_accepted_tokens: NonNegative = 0
    depths: dict[NonNegative, NonNegative] = {}
    sources: dict[str, SourceReport] = {}

    @property
    def plain_step_ms(self) -> float | None:
        """T(1); None until it is measured."""
        return self.step_ms.get(1)

    @property
    def idle_share(self) -> float:
        """Of the choices of a depth, those for none; 0 before the first."""
        return self.depths.get(0, 0) / (sum(self.depths.values()) or 1)


class LeadReport(_Record):
    """`planner` is None while the engine is busy or started again."""

    lead: LeadInfo = LeadInfo()
    backs: tuple[BackReport, ...] = ()
    planner: PlannerReport | None = None
