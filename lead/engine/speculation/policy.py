"""Policies choose what comes next: a step that verifies drafts, a wait for more of them, or drafting.

`adaptive.Adaptive` is the default; the policies here are what it is compared with.
"""

from collections.abc import Sequence
from itertools import accumulate, chain, islice, repeat
from operator import mul
from typing import NamedTuple, Protocol

from lead.engine.speculation.arrivals import NOW, Arrival
from lead.engine.speculation.drafts import DraftChain
from lead.engine.speculation.step_cost import StepCost

SYNC_PATIENCE_S = 1.0
"""How long `Sync` waits for a source that sends nothing."""


class FutureDraft(NamedTuple):
    """What a source may add to its draft of a sequence, and when.

    `probabilities` are those of its `n_drafted` current tokens, and of next ones as far as those are known;
    `mean` is that of each further one, up to `n_most` in all. A back adds them at its own pace (`arrival`).
    What drafts in the engine adds one with each round: the first round decodes `n_pending` tokens of the
    sequence. `catch_up`: the share of this step, in seconds, in reading what it has missed of the text.
    """

    probabilities: tuple[float, ...]
    n_drafted: int
    mean: float
    n_most: int
    arrival: Arrival = NOW
    n_pending: int = 1
    catch_up: float = 0.0

    def survivals(self) -> tuple[float, ...]:
        """For each token that it may have, the probability that it and all before it are accepted."""
        n = max(self.n_drafted, self.n_most)
        return tuple(accumulate(islice(chain(self.probabilities, repeat(self.mean)), n), mul))


class Candidate(NamedTuple):
    """A generating sequence: the best chain there is, and how it may grow.

    `n_useful` is the most draft tokens that can be committed. `is_drafting`: some source is drafting for it
    and has not been silent for long. `n_fed` committed tokens are decoded before the draft: more than one
    where accepted tokens of a rejected draft are replayed. `awaited`: what backs are about to add. `inline`:
    what the engine may draft itself.
    """

    chain: DraftChain
    n_useful: int
    awaited: tuple[FutureDraft, ...] = ()
    is_drafting: bool = False
    n_fed: int = 1
    inline: FutureDraft | None = None

    def expected_tokens(self, depth: int) -> float:
        """Tokens that a step commits on average if it verifies the first `depth` of the chain."""
        return 1 + float(sum(accumulate(self.chain.probabilities[:depth], mul)))


class Verify(NamedTuple):
    """Decode a step with `depths` draft tokens of the candidates; it should commit `n_expected` tokens."""

    depths: tuple[int, ...]
    n_expected: float = 0.0


class Wait(NamedTuple):
    """Choose again when a command has arrived, or after these seconds."""

    seconds: float


class DraftMore(NamedTuple):
    """Draft up to `n_rounds` more tokens of these candidates in the engine, then choose again.

    A candidate drops out when the probability that all of its draft is accepted falls below `min_survival`.
    at_once: what the drafter has missed of the text it reads in one round, although other sequences wait.
    """

    candidates: tuple[int, ...]
    n_rounds: int = 1
    min_survival: float = 0.0
    at_once: bool = False


Choice = Verify | Wait | DraftMore


class Policy(Protocol):
    """Chooses what comes next."""

    def choose(
        self,
        candidates: Sequence[Candidate],
        n_prompt: int,
        cost: StepCost,
        draft_cost: StepCost | None = None,
    ) -> Choice:
        """The batch of the next step has `n_prompt` tokens of prompts as well.

        `draft_cost` is T(n) of the drafter in the engine.
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
    ) -> Choice:
        return Verify((0,) * len(candidates), len(candidates))


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
    ) -> Choice:
        depths = tuple(min(len(candidate.chain.tokens), self._depth) for candidate in candidates)
        short = tuple(i for i, each in enumerate(candidates) if each.inline and depths[i] < self._depth)
        return DraftMore(short) if short else verify(candidates, depths)


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
    ) -> Choice:
        choice = self._fixed.choose(candidates, n_prompt, cost, draft_cost)
        if n_prompt or not isinstance(choice, Verify):
            return choice
        waiting = any(
            candidate.is_drafting and depth < min(self._depth, candidate.n_useful)
            for candidate, depth in zip(candidates, choice.depths, strict=True)
        )
        return Wait(SYNC_PATIENCE_S) if waiting else choice


def verify(candidates: Sequence[Candidate], depths: tuple[int, ...]) -> Verify:
    """A step of these depths, with the tokens that it commits on average, over all sequences."""
    return Verify(depths, sum(map(Candidate.expected_tokens, candidates, depths)))
