"""What speculation is asked for a step, and what it replies."""

from typing import NamedTuple

from lead.engine.speculation.draft_chain import DraftChain
from lead.engine.speculation.inline_drafting import DraftOrder


class GeneratingSequence(NamedTuple):
    """A sequence whose next token is due: at most `n_useful` draft tokens can be committed.

    `n_fed` committed tokens are decoded before the draft. It may get `n_left` more tokens. It is in `slot`.
    """

    id: str
    n_useful: int
    n_fed: int = 1
    n_left: int = 1 << 30
    slot: int = 0


class SpeculationPlan(NamedTuple):
    """What each generating sequence verifies; or, if `wait` > 0, nothing yet (see `policy.DepthChoice`).

    `order`: nothing before that is drafted in the engine.
    """

    chains: list[DraftChain]
    wait: float
    n_expected: float
    order: DraftOrder | None = None
