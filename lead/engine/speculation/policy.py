"""Policies choose what comes next: a step that verifies drafts, a wait for more of them, or drafting.

`adaptive.Adaptive` is the default; the policies here are what it is compared with.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lead.engine.speculation.arrivals import NOW, Arrival
from lead.engine.speculation.drafts import EMPTY_CHAIN, DraftChain, Probabilities
from lead.engine.speculation.sequence_speculation import SequenceSpeculation
from lead.engine.speculation.step_cost import StepCost

SYNC_PATIENCE_S = 1.0
"""How long `Sync` waits for a source that sends nothing."""


class FutureDraft(NamedTuple):
    """What a source may add to its draft of a sequence, and when.

    `probabilities` are those of its `n_drafted` current tokens and of all that may follow. A back adds them
    at its own pace (`arrival`). What drafts in the engine adds one with each round: the first round decodes
    `n_pending` tokens of the sequence. `catch_up`: the share of this step, in seconds, in reading what it has
    missed of the text.
    """

    probabilities: Probabilities
    n_drafted: int
    arrival: Arrival = NOW
    n_pending: int = 1
    catch_up: float = 0.0


class Candidate(NamedTuple):
    """A sequence whose next token is due: the best chain there is, and how it may grow.

    At most `n_useful` draft tokens can be committed; `chain` has no more. `n_fed` committed tokens are
    decoded before the draft: more than one where accepted tokens of a rejected draft are replayed. `awaited`:
    what backs are about to add. `inline`: what the engine may draft itself. `is_drafting`: some source is
    drafting for it and has not been silent for long.
    """

    sequence: SequenceSpeculation
    n_useful: int
    n_fed: int = 1
    chain: DraftChain = EMPTY_CHAIN
    awaited: tuple[FutureDraft, ...] = ()
    inline: FutureDraft | None = None
    is_drafting: bool = False


class Verify(NamedTuple):
    """Decode a step with these drafts, one of each candidate."""

    drafts: tuple[DraftChain, ...]


class Wait(NamedTuple):
    """Choose again when a command has arrived, or after these seconds."""

    seconds: float


class DraftOrder(NamedTuple):
    """Draft up to `n_rounds` more tokens of these sequences in the engine, then choose again.

    A sequence drops out when the probability that all of its draft is accepted falls below `min_probability`.
    at_once: what the drafter has missed of a text it reads in one round, however long that takes.
    """

    sequences: tuple[SequenceSpeculation, ...]
    n_rounds: int = 1
    min_probability: float = 0.0
    at_once: bool = False


Choice = Verify | Wait | DraftOrder


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


class Fixed:
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
        short = tuple(
            each.sequence
            for each, depth in zip(candidates, depths, strict=True)
            if each.inline and depth < self._depth
        )
        return DraftOrder(short) if short else verify(candidates, depths)


class Sync:
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
            candidate.is_drafting and len(draft.tokens) < min(self._depth, candidate.n_useful)
            for candidate, draft in zip(candidates, choice.drafts, strict=True)
        )
        return Wait(SYNC_PATIENCE_S) if waiting else choice


def verify(candidates: Sequence[Candidate], depths: Sequence[int]) -> Verify:
    """A step with `depths` draft tokens of the candidates."""
    return Verify(tuple(each.chain.cut(n) for each, n in zip(candidates, depths, strict=True)))
