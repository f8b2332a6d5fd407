"""Policies choose how many draft tokens of each sequence the next step verifies, or to wait for more.

`adaptive.Adaptive` is the default; the policies here are what it is compared with.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple, Protocol

from lead.engine.speculation.arrivals import Arrival
from lead.engine.speculation.draft_chain import DraftChain
from lead.engine.speculation.inline_drafting import InlineOffer
from lead.engine.speculation.step_cost import StepCost

SYNC_PATIENCE_S = 1.0
"""How long `Sync` waits for a source that sends nothing."""


class ExpectedDraft(NamedTuple):
    """What a source is about to add to its draft.

    `probabilities` are those of its current tokens, `prospects` those of its next ones where other sources
    have proposed some already, `mean` that of each further one.
    """

    probabilities: tuple[float, ...]
    mean: float
    arrival: Arrival
    prospects: tuple[float, ...] = ()

    def further(self, n: int) -> tuple[float, ...]:
        """The probabilities of its next `n` tokens."""
        return (*self.prospects, *(self.mean,) * n)[:n]


class Candidate(NamedTuple):
    """A generating sequence: the best chain there is, and what waiting may add to it.

    `n_useful` is the most draft tokens that can be committed. `is_drafting`: some source is drafting for it
    and has not been silent for long. `n_fed` committed tokens are decoded before the draft: more than one
    where accepted tokens of a rejected draft are replayed. `inline`: what the engine may draft itself.
    """

    chain: DraftChain
    n_useful: int
    expected: tuple[ExpectedDraft, ...] = ()
    is_drafting: bool = False
    n_fed: int = 1
    inline: InlineOffer | None = None

    def expected_tokens(self, depth: int) -> float:
        """Tokens that a step commits on average if it verifies the first `depth` of the chain."""
        return 1 + float(sum(accumulate(self.chain.probabilities[:depth], mul)))


class DraftChoice(NamedTuple):
    """Draft `n_rounds` more tokens of these candidates (see `inline_drafting.DraftOrder`)."""

    candidates: tuple[int, ...]
    n_rounds: int = 1
    min_survival: float = 0.0


class DepthChoice(NamedTuple):
    """One depth per candidate; or, if `wait` > 0, choose again when something arrives or after these seconds.

    Or, with `drafting`, choose again after that. `n_expected` is the number of tokens that the step is
    expected to commit.
    """

    depths: tuple[int, ...]
    wait: float = 0.0
    n_expected: float = 0.0
    drafting: DraftChoice | None = None


class Policy(Protocol):
    """Chooses depths."""

    def choose(
        self,
        candidates: Sequence[Candidate],
        n_prompt: int,
        cost: StepCost,
        draft_cost: StepCost | None = None,
    ) -> DepthChoice:
        """For the next step, whose batch has `n_prompt` tokens of prompts as well.

        `draft_cost` is T(n) of the inline drafter.
        """

    def learn(self, n_sequences: int, n_committed: int, seconds: float, cost: StepCost) -> None:
        """A step without prompts committed `n_committed` tokens in `seconds`, the wait before it included."""


class _StatelessPolicy:
    def learn(self, n_sequences: int, n_committed: int, seconds: float, cost: StepCost) -> None:
        pass


class Off(_StatelessPolicy):
    """No speculation."""

    def choose(
        self,
        candidates: Sequence[Candidate],
        _n_prompt: int,
        _cost: StepCost,
        _draft_cost: StepCost | None = None,
    ) -> DepthChoice:
        return DepthChoice((0,) * len(candidates), n_expected=len(candidates))


class Fixed(_StatelessPolicy):
    """Verify up to `depth` tokens if they are there; never wait for those of backs."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def choose(
        self,
        candidates: Sequence[Candidate],
        _n_prompt: int,
        _cost: StepCost,
        _draft_cost: StepCost | None = None,
    ) -> DepthChoice:
        depths = tuple(min(len(candidate.chain.tokens), self._depth) for candidate in candidates)
        short = [i for i, each in enumerate(candidates) if each.inline and depths[i] < self._depth]
        drafting = DraftChoice(tuple(short)) if short else None
        return DepthChoice(depths, n_expected=expected_tokens(candidates, depths), drafting=drafting)


class Sync(_StatelessPolicy):
    """Wait for `depth` tokens before every step, as with a draft model inside the same program."""

    def __init__(self, depth: int) -> None:
        self._fixed = Fixed(depth)
        self._depth = depth

    def choose(
        self,
        candidates: Sequence[Candidate],
        n_prompt: int,
        cost: StepCost,
        draft_cost: StepCost | None = None,
    ) -> DepthChoice:
        choice = self._fixed.choose(candidates, n_prompt, cost, draft_cost)
        if choice.drafting:
            return choice
        waiting = any(
            candidate.is_drafting and depth < min(self._depth, candidate.n_useful)
            for candidate, depth in zip(candidates, choice.depths, strict=True)
        )
        return choice._replace(wait=SYNC_PATIENCE_S) if waiting and not n_prompt else choice


def expected_tokens(candidates: Sequence[Candidate], depths: Sequence[int]) -> float:
    """Tokens that a step of these depths commits on average, over all sequences."""
    return sum(candidate.expected_tokens(depth) for candidate, depth in zip(candidates, depths, strict=True))
