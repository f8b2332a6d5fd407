"""Speculation, for the scheduler and the loop: drafts go in, chains to verify come out.

The manager is the only writer of its parts: the board (what is proposed), T(n), acceptance and arrivals (what
was learned), the tuning of backs, and the statistics. Its policy chooses; the scheduler verifies.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lead.engine.commands import NGRAM, PolicyName, PostDraft, Submit
from lead.engine.drafters.followers import Followers
from lead.engine.drafters.inline_drafter import InlineDrafter
from lead.engine.drafters.local_drafter import LocalDrafter
from lead.engine.events import BackEvent, Committed, DraftsDropped
from lead.engine.sequence import EngineSequence
from lead.engine.speculation.acceptance import Acceptance
from lead.engine.speculation.adaptive import Adaptive
from lead.engine.speculation.arrivals import Arrivals
from lead.engine.speculation.batching import Batching
from lead.engine.speculation.board import Board
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.draft_chain import EMPTY_CHAIN, MAX_DEPTH, DraftChain
from lead.engine.speculation.draft_tree import DraftToken, DraftTree
from lead.engine.speculation.inline_drafting import DraftOrder, InlineDrafting, InlineOffer
from lead.engine.speculation.policy import (
    SYNC_PATIENCE_S,
    Candidate,
    DepthChoice,
    ExpectedDraft,
    Fixed,
    Off,
    Policy,
    Sync,
)
from lead.engine.speculation.speculation_plan import GeneratingSequence, SpeculationPlan
from lead.engine.speculation.speculation_stats import SpeculationStats, StepReport
from lead.engine.speculation.step_cost import StepCost
from lead.engine.speculation.tuning import BackTuning
from shared.llama.batch_invariance import InvariantWidths

MakeLocalDrafters = Callable[[Submit], Mapping[str, LocalDrafter]]
"""The drafters in the engine for a request, by name."""


class DraftRound(NamedTuple):
    """A decode of `n_tokens` tokens added `n_drafted` tokens to drafts. `rest`: what is still ordered."""

    n_tokens: int
    n_drafted: int
    rest: DraftOrder | None


@dataclass(slots=True)
class _OpenSequence:
    """`tokens` are the committed ones, which the scheduler extends."""

    tokens: Sequence[int]
    drafters: Mapping[str, LocalDrafter]
    followers: Followers | None = None


class SpeculationManager:
    """`now` is always seconds of one monotonic clock."""

    def __init__(
        self,
        policy: PolicyName,
        depth: int,
        end_tokens: frozenset[int],
        make_drafters: MakeLocalDrafters = lambda _: {},
        *,
        batching: Batching | None = None,
        widths: InvariantWidths | None = None,
        cost: StepCost | None = None,
        constants: SpeculationConstants = DEFAULTS,
        inline: InlineDrafter | None = None,
    ) -> None:
        """`inline` drafts for all sequences, when a plan orders it.

        widths: in which the model decodes; what would be padding is filled with draft tokens.
        """
        self.cost = cost or StepCost(constants)
        self.acceptance = Acceptance(constants)
        self.stats = SpeculationStats()
        self.tuning = BackTuning(constants)
        self._board = Board()
        self._arrivals = Arrivals(constants)
        self._constants = constants
        self._widths = widths
        self._end_tokens = end_tokens
        self._make_drafters = make_drafters
        self._sequences: dict[str, _OpenSequence] = {}
        self.inline = InlineDrafting(inline, constants) if inline else None
        self._local_names: set[str] = {inline.source} if inline else set()
        self._adaptive = Adaptive(batching, constants)  # what it has learned outlives another policy
        self._waited = 0.0
        self.set_policy(policy, depth)

    # Commands of the front

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Change the policy; `depth` is for `fixed` and `sync`. Measurements are kept."""
        self._policy_name: PolicyName = policy
        self._depth = depth
        self._policy = self._make_policy(policy, depth)
        self.tuning.reset(policy, depth)

    def connect(self, backs: Sequence[str]) -> None:
        """These backs are connected now. Drafts of others stay; what was learned about them is forgotten."""
        self._arrivals.connect(backs)
        for gone in set(self.acceptance.sources) - {*backs, *self._local_names}:
            self.acceptance.forget(gone)

    def post_draft(self, draft: PostDraft) -> None:
        """A back proposes something; its draft may be stale or for a sequence that has ended."""
        tree = DraftTree(draft.base, draft.tokens, draft.parents, draft.confidences)
        end = draft.base + len(tree.main_branch())
        sequence = self._sequences.get(draft.sequence)
        committed = sequence.tokens if sequence else ()
        result = self._board.post(draft.sequence, draft.source, tree, committed)
        self.acceptance.learn(result.outcomes)
        self._arrivals.on_draft(draft.sequence, draft.source, draft.base, end, draft.received_at)
        if result.alive:
            self._arrivals.on_draft_alive(draft.sequence, draft.source)

    def describe(self) -> dict[str, Any]:
        """What was learned and done, for `GET /v1/speculation`."""
        return {
            "policy": self._policy_name,
            "depth": self._depth,
            "n_ahead": self.tuning.n_ahead,
            "min_confidence": round(self.tuning.min_confidence, 3),
            "step_ms": {str(n): round(1000 * seconds, 3) for n, seconds in self.cost.table().items()},
            **self.stats.describe(),
            **({self.inline.drafter.source: self.inline.describe()} if self.inline else {}),
            "sources": {
                source: {**self.acceptance.describe(source), **self._arrivals.describe(source)}
                for source in sorted({*self.acceptance.sources, *self._arrivals.known})
            },
        }

    # Calls of the scheduler

    def open(self, sequence: EngineSequence, request: Submit, now: float) -> None:
        """A sequence begins; its list of tokens is read from now on."""
        drafters = self._make_drafters(request)
        followers = Followers() if self._widths and NGRAM in drafters else None
        self._sequences[sequence.id] = _OpenSequence(sequence.tokens, drafters, followers)
        self._local_names.update(drafters)
        self._board.open(sequence.id)
        self._arrivals.on_open(sequence.id, len(sequence.tokens), now)
        if self.inline:
            self.inline.open(sequence.id, request.sampling, sequence.tokens, sequence.shift)

    def close(self, sequence: str) -> None:
        """A sequence has ended; one that is unknown has ended before."""
        if ended := self._sequences.pop(sequence, None):
            for drafter in ended.drafters.values():
                drafter.close(ended.tokens)
            if self.inline:
                self.inline.close(sequence, len(ended.tokens))
        self._board.close(sequence)
        self._arrivals.on_close(sequence)

    def plan(self, generating: Sequence[GeneratingSequence], n_prompt: int, now: float) -> SpeculationPlan:
        """What to verify; the batch has `n_prompt` tokens of prompts as well."""
        if self._policy_name == "off":
            return SpeculationPlan([EMPTY_CHAIN] * len(generating), 0.0, len(generating))
        candidates = [self._candidate(each, now) for each in generating]
        draft_cost = self.inline.cost if self.inline else self.cost
        choice = self._policy.choose(candidates, n_prompt, self.cost, draft_cost)
        order = self._order(choice, generating, is_alone=n_prompt == 0 and len(generating) == 1)
        chains = [candidate.chain.cut(n) for candidate, n in zip(candidates, choice.depths, strict=True)]
        if self._widths and not choice.wait:
            chains = [
                self._fill(*each, self._widths) for each in zip(generating, candidates, chains, strict=True)
            ]
        return SpeculationPlan(chains, choice.wait, choice.n_expected, order)

    def on_commit(self, committed: Committed, now: float) -> None:
        """One sequence's part of a step; the backs receive it at this moment."""
        sequence, board = committed.sequence, self._board
        before = list(board.sources(sequence))
        self.acceptance.learn(
            board.extend(sequence, committed.start, committed.tokens, self.acceptance.probability)
        )
        n_committed = committed.start + len(committed.tokens)
        self._arrivals.on_commit(sequence, n_committed, now)
        after = set(board.sources(sequence))
        for source in before:
            if source not in after:
                self._arrivals.on_draft_dead(sequence, source, n_committed)
        self.stats.add_committed(committed, covered=bool(after - self._sequences[sequence].drafters.keys()))

    def on_step(self, step: StepReport) -> None:
        """Called after each step, after `on_commit` for each of its sequences."""
        n_sequences, waited = len(step.depths), self._waited
        self.stats.add_step(step, self.cost.seconds(step.n_tokens), waited)
        if step.n_passes == 1:
            self.cost.learn(step.n_tokens, step.seconds)
        if step.n_expected is not None:
            self._policy.learn(n_sequences, step.n_committed, step.seconds + waited, self.cost)
        if self.inline:
            self.inline.on_step(step.seconds + waited)
        self._waited = 0.0
        self.tuning.note_depths(step.depths)
        if self._policy_name == "adaptive" and self.stats.n_steps % self._constants.tune_every == 0:
            rate, answer_seconds = self.stats.tokens_per_second, self._arrivals.slowest_first
            self.tuning.update(n_sequences, rate, answer_seconds, self.cost)

    # Calls of the loop

    def on_wait(self, seconds: float) -> None:
        """The engine waited for drafts, because a plan asked for it."""
        self.stats.add_wait(seconds)
        self._waited += seconds

    def draft(self, order: DraftOrder) -> DraftRound:
        """One round of drafting in the engine; `on_drafted` has to follow."""
        assert self.inline
        source, done = self.inline.drafter.source, self.inline.draft(order)
        left = []
        n_drafted = 0
        for sequence, (tokens, confidences) in done.drafts.items():
            n_drafted += 1
            committed = self._sequences[sequence].tokens
            self._board.post(
                sequence, source, DraftTree(len(committed), tokens, None, confidences), committed
            )
            survival = math.prod(self._probabilities(sequence, source))
            if survival >= order.min_survival and self.inline.drafter.n_pending(sequence):
                left.append(sequence)
        rest = order._replace(sequences=tuple(left), n_rounds=order.n_rounds - 1)
        return DraftRound(done.n_tokens, n_drafted, rest if left and rest.n_rounds > 0 else None)

    def on_drafted(self, done: DraftRound, seconds: float) -> None:
        """That round took `seconds`."""
        assert self.inline
        self.inline.on_round(done.n_tokens, done.n_drafted, seconds)
        self.stats.add_drafting(seconds)
        self._waited += seconds

    def pop_events(self) -> list[BackEvent]:
        """What the front should know since the last call."""
        n_stale = self._board.pop_stale()
        events: list[BackEvent] = [DraftsDropped(source=source, n_stale=n) for source, n in n_stale.items()]
        tuned = self.tuning.pop_change()
        return events if tuned is None else [*events, tuned]

    def describe_records(self) -> dict[str, Any]:
        """The known sequences and the sources of their drafts, for the log of a failed check."""
        return {"open": list(self._sequences), "board": self._board.describe()}

    def check_integrity(self, sequences: set[str]) -> None:
        """Raise AssertionError unless there are records of exactly `sequences`, and sound ones."""
        assert self._sequences.keys() == sequences, f"open: {set(self._sequences)}, expected {sequences}"
        self._board.check_integrity(sequences)

    def _make_policy(self, policy: PolicyName, depth: int) -> Policy:
        match policy:
            case "adaptive":
                return self._adaptive
            case "fixed":
                return Fixed(depth)
            case "sync":
                return Sync(depth)
            case "off":
                return Off()

    def _order(
        self, choice: DepthChoice, generating: Sequence[GeneratingSequence], *, is_alone: bool
    ) -> DraftOrder | None:
        if self.inline is None or choice.wait > 0:
            return None
        if drafting := choice.drafting:
            sequences = [generating[i].id for i in drafting.candidates]
            return self.inline.order(sequences, drafting.n_rounds, drafting.min_survival, alone=is_alone)
        if self._policy_name != "adaptive":
            return None
        idle = (each.id for each in generating if each.n_useful > 0 and not self._has_own(each.id))
        explored = self.inline.exploration(idle, self.cost.seconds(len(generating)))
        return self.inline.order([explored], 1, 0.0, alone=True) if explored else None

    def _has_own(self, sequence: str) -> bool:
        """Whether there are tokens of the inline drafter, which will be scored."""
        return self.inline is not None and bool(self._board.main_branch(sequence, self.inline.drafter.source))

    def _fill(
        self, sequence: GeneratingSequence, candidate: Candidate, chain: DraftChain, widths: InvariantWidths
    ) -> DraftChain:
        """`chain` with guesses in place of padding: more of the draft, then what followed before."""
        n_free = widths.n_free(sequence.n_fed + len(chain.tokens))
        filled = candidate.chain.cut(len(chain.tokens) + n_free)
        n_left = min(n_free + len(chain.tokens), candidate.n_useful) - len(filled.tokens)
        followers = self._sequences[sequence.id].followers
        if n_left <= 0 or followers is None:
            return filled
        tokens = self._sequences[sequence.id].tokens
        guesses = followers.follow(tokens, filled.tokens[-1] if filled.tokens else tokens[-1], n_left)
        return filled.extended(guesses, NGRAM)

    def _candidate(self, generating: GeneratingSequence, now: float) -> Candidate:
        if generating.n_useful <= 0:
            return Candidate(EMPTY_CHAIN, 0, n_fed=generating.n_fed)
        candidate = self._candidate_without_inline(generating.id, generating.n_useful, now)
        return candidate._replace(n_fed=generating.n_fed, inline=self._inline_offer(generating))

    def _inline_offer(self, generating: GeneratingSequence) -> InlineOffer | None:
        if self.inline is None:
            return None
        self.inline.drafter.place(generating.id, generating.slot)
        source = self.inline.drafter.source
        probabilities = self._probabilities(generating.id, source)
        mean = self.acceptance.hopeful_mean(source)
        offer = self.inline.offer(generating.id, probabilities, mean, generating.n_useful, generating.n_left)
        return offer and offer._replace(prospects=self._prospects(generating.id, source))

    def _probabilities(self, sequence: str, source: str) -> tuple[float, ...]:
        """Of a source's main branch: that each token is accepted if those before it are."""
        return self._board.probabilities(sequence, source, self.acceptance.probability)

    def _prospects(self, sequence: str, source: str) -> tuple[float, ...]:
        """Of the next tokens of a source, where others have proposed some."""
        behind = self._board.probabilities_behind(sequence, source, self.acceptance.probability)
        return tuple(self.acceptance.mean_beside(source, each) for each in behind)

    def _candidate_without_inline(self, sequence: str, n_useful: int, now: float) -> Candidate:
        policy = self._policy_name
        if policy != "sync":  # which represents engines without local drafters
            self._ask_local_drafters(sequence)
        min_survival = self._constants.min_survival if policy == "adaptive" else 0.0
        best = self._board.best(sequence, self.acceptance.probability, min_survival)
        candidate = Candidate(best.cut(min(n_useful, MAX_DEPTH)), n_useful)
        match policy:
            case "adaptive":
                return candidate._replace(expected=self._expected_drafts(sequence, now))
            case "sync":
                ended = bool(best.tokens) and best.tokens[-1] in self._end_tokens
                is_drafting = not ended and self._arrivals.is_drafting(sequence, now, SYNC_PATIENCE_S)
                return candidate._replace(is_drafting=is_drafting)
            case _:
                return candidate

    def _ask_local_drafters(self, sequence: str) -> None:
        tokens = self._sequences[sequence].tokens
        for name, drafter in self._sequences[sequence].drafters.items():
            if len(self._board.main_branch(sequence, name)) >= self._constants.enough_local_tokens:
                continue  # enough is left of what it proposed before
            proposed, confidences = drafter.draft(tokens, self._constants.max_local_tokens)
            if proposed:
                tree = DraftTree(len(tokens), proposed, None, confidences)
                self._board.post(sequence, name, tree, tokens)

    def _expected_drafts(self, sequence: str, now: float) -> tuple[ExpectedDraft, ...]:
        """What backs are about to add."""
        drafts = []
        for source in self._arrivals.sources(sequence):
            arrival = self._arrivals.expected(sequence, source, now)
            branch = self._board.main_branch(sequence, source) if arrival else []
            if arrival is None or self._is_complete(branch):
                continue
            probabilities = self._probabilities(sequence, source)
            drafts.append(
                ExpectedDraft(
                    probabilities, self.acceptance.mean(source), arrival, self._prospects(sequence, source)
                )
            )
        return tuple(drafts)

    def _is_complete(self, branch: Sequence[DraftToken]) -> bool:
        """Whether a back that keeps to `Tuned` has stopped here."""
        if not branch:
            return False
        confidence = math.prod(1.0 if draft.confidence is None else draft.confidence for draft in branch)
        return (
            len(branch) >= self.tuning.n_ahead
            or branch[-1].token in self._end_tokens
            or confidence < self.tuning.min_confidence
        )
