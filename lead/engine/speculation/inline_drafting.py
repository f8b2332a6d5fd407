"""Drafting inside the engine: its cost, the sequences to draft for, and when to explore.

An inline drafter takes the engine's time: every draft token delays the step. The policy decides whether a
token is worth the delay; this module has the figures for the decision.
"""

from collections.abc import Iterable
from typing import Any

from lead.engine.drafters.draft_source import InlineDrafter
from lead.engine.speculation.arrivals import FutureDraft
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.drafts import Drafts
from lead.engine.speculation.policy import DraftOrder
from shared.sampling.parameters import SamplingParameters
from shared.step_cost import StepCost

_USUAL_PENDING = 4
"""After a step, the drafter has one or two pending tokens, or a few more with several sources. With more than
this many, it was not used for a while, or the prompt is new, and it must catch up."""
_N_TIMED, _N_TRUSTED = 6, 32
"""The number of rounds after which the time of a round is known, and after which the acceptance is known."""
_HOPELESS = 0.4
"""A mean acceptance below this is believed as soon as the time of a round is known."""
_CATCH_UP_CHUNK = 128
"""The maximum number of missed tokens to read before each step while other sequences are generating."""
_UNLIMITED = 1 << 30


class InlineDrafting:
    """The state of drafting in the engine. Only the manager writes it.

    cost: T(n) of the drafter, for a round with n tokens in its batch.
    """

    def __init__(self, drafter: InlineDrafter[Any], constants: SpeculationConstants = DEFAULTS) -> None:
        self.drafter = drafter
        self.cost = StepCost(constants)
        self._constants = constants
        self._answer_length = constants.usual_answer
        self._n_steps = 0
        self._engine_seconds = 0.0
        self._explored_at: float | None = None  # in seconds of the engine's work; None: not yet of interest
        self._n_rounds = 0
        self._n_tokens = 0
        self._seconds = 0.0

    # The life of a sequence

    def open(self, drafts: Drafts, sampling: SamplingParameters) -> None:
        drafts.inline = self.drafter.open(drafts.id, sampling, drafts.tokens)

    def close(self, drafts: Drafts) -> None:
        if n_generated := len(drafts.tokens) - drafts.n_opened:
            decay = self._constants.answer_decay
            self._answer_length = decay * self._answer_length + (1 - decay) * n_generated

    def on_step(self, seconds: float) -> None:
        """Record a step, which took `seconds` including waits and drafting."""
        self._n_steps += 1
        self._engine_seconds += seconds

    # What may be drafted

    def offer(self, drafts: Drafts, draft: FutureDraft, n_left: int) -> FutureDraft | None:
        """Return the tokens that could be added to `draft`, with their cost; None: it cannot grow.

        n_left: the maximum number of tokens that the sequence may still get.
        """
        if self._is_stuck(drafts) or draft.n_drafted == len(draft.probabilities):
            return None
        n_pending = drafts.n_pending
        if n_pending is None:
            return None
        if n_pending <= _USUAL_PENDING:
            return draft._replace(n_pending=n_pending)
        n_steps = max(1.0, min(n_left, self._answer_length) / 2)
        return draft._replace(catch_up=self._catch_up_seconds(n_pending) / n_steps)

    def exploration(self, sequences: Iterable[Drafts], mean: float, step_seconds: float) -> Drafts | None:
        """Return a sequence to draft for, although this seems not to pay, to learn whether it does; None: not
        yet.

        Exploration may take only a small share of the engine's time, so it waits until catching up is cheap.
        mean: the estimated probability that a token is right. step_seconds: the time of a step.
        """
        if self._explored_at is None:
            self._explored_at = self._engine_seconds
        is_known = self._n_rounds >= (_N_TIMED if mean < _HOPELESS else _N_TRUSTED)
        share = self._constants.inline_exploration if is_known else self._constants.first_exploration
        spare = share * (self._engine_seconds - self._explored_at)
        spare = min(spare, self._constants.max_exploration * step_seconds)
        if spare < self.cost.seconds(1):
            return None
        for sequence in sequences:
            n_pending = sequence.n_pending
            if n_pending is None or self._is_stuck(sequence):
                continue
            if self.cost.seconds(1) + self._catch_up_seconds(n_pending) <= spare:
                self._explored_at = self._engine_seconds
                return sequence
        return None

    # Drafting

    def draft(self, order: DraftOrder) -> tuple[int, list[Drafts]]:
        """Draft one round; return its number of tokens, and the sequences whose drafts have grown.

        A sequence whose draft has not grown gets no more tokens before the next step, unless its text is read
        `at_once`.
        """
        sequences = order.sequences
        n_max = _UNLIMITED if order.at_once else len(sequences) + _CATCH_UP_CHUNK
        n_tokens, grown_drafts = self.drafter.draft([each.inline for each in sequences], n_max)
        grown = [each for each in sequences if each.inline in grown_drafts]
        for sequence in sequences:
            n_pending = sequence.n_pending
            is_stuck = n_pending is None or n_pending <= 1 or not order.at_once
            if sequence not in grown and is_stuck:
                sequence.stuck_at_step = self._n_steps
        return n_tokens, grown

    def on_round(self, n_tokens: int, n_drafted: int, seconds: float) -> None:
        """Record a round of `n_tokens` tokens that took `seconds` and added `n_drafted` tokens to drafts."""
        self._n_tokens += n_drafted
        self._seconds += seconds
        if n_tokens and self.drafter.on_round(n_tokens, seconds):
            self.cost.learn(n_tokens, seconds)
            self._n_rounds += 1

    def describe(self) -> dict[str, Any]:
        """Return the record of drafting in the engine for `GET /v1/speculation`."""
        return {
            "token_ms": round(1000 * self.cost.seconds(1), 3),
            "n_tokens": self._n_tokens,
            "seconds": round(self._seconds, 6),
        }

    def _is_stuck(self, sequence: Drafts) -> bool:
        """Return whether a draft gets no more tokens before the next step."""
        return sequence.stuck_at_step == self._n_steps

    def _catch_up_seconds(self, n_pending: int) -> float:
        return max(0.0, self.cost.seconds(n_pending) - self.cost.seconds(1))
