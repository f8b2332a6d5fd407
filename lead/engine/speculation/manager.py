"""Speculation, as the scheduler and the loop see it: drafts go in, chains to verify come out.

The manager owns the drafts of each sequence, T(n), the forecast, the tuning of backs, and the statistics;
these change only when the manager calls them. Its policy chooses what to verify.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lead.engine.commands import NGRAM, PolicyName, Submit
from lead.engine.drafters.draft_source import InlineDrafter, LookupDrafter
from lead.engine.events import BackEvent, Committed, DraftsDropped
from lead.engine.sequence import EngineSequence, Verification
from lead.engine.slot import Slot
from lead.engine.speculation.arrivals import FutureDraft
from lead.engine.speculation.batching import Batching, LikeliestFirst
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.drafts import DraftChain, Drafts, DraftTree
from lead.engine.speculation.forecast import Candidate, Forecast
from lead.engine.speculation.guard import Guard
from lead.engine.speculation.inline_drafting import InlineDrafting
from lead.engine.speculation.policy import (
    SYNC_PATIENCE_S,
    Adaptive,
    Choice,
    DraftOrder,
    Fixed,
    Policy,
    Sync,
    Verify,
    Wait,
)
from lead.engine.speculation.speculation_stats import SpeculationStats, StepReport
from lead.engine.speculation.tuning import BackTuning
from shared.llama.batch_layout import BatchSizes
from shared.protocol import Draft
from shared.step_cost import StepCost

MakeLookups = Callable[[Submit], Mapping[str, LookupDrafter]]
"""The lookup drafters for a request, by the names of their sources."""


class DraftRound(NamedTuple):
    """A round of drafting that decoded `n_tokens` tokens and added `n_drafted` tokens to drafts.

    rest: the remaining order; None: it is done.
    """

    n_tokens: int
    n_drafted: int
    rest: DraftOrder | None


class SpeculationManager:
    """The interface of speculation. `now` is always in seconds of one monotonic clock."""

    def __init__(
        self,
        policy: PolicyName,
        depth: int,
        end_tokens: frozenset[int],
        make_drafters: MakeLookups = lambda _: {},
        *,
        batching: Batching | None = None,
        batch_sizes: BatchSizes | None = None,
        constants: SpeculationConstants = DEFAULTS,
        inline: InlineDrafter[Any] | None = None,
    ) -> None:
        """inline: the drafter in the engine, if there is one. batching: its `cost` is the T(n) to learn.

        batch_sizes: the sizes in which the model decodes; draft tokens fill the padding.
        """
        batching = batching or LikeliestFirst(StepCost(constants))
        self.cost = batching.cost  # T(n)
        self._batching = batching
        self.forecast = Forecast(constants)
        self.stats = SpeculationStats()
        self.tuning = BackTuning(constants)
        self.inline = InlineDrafting(inline, constants) if inline else None  # None: no drafter in the engine
        self._constants = constants
        self._batch_sizes = batch_sizes
        self._end_tokens = end_tokens
        self._make_drafters = make_drafters
        self._own_sources: set[str] = {inline.source} if inline else set()  # that draft in the engine
        self._n_stale: Counter[str] = Counter()  # drafts that came too late, by source, since the last event
        draft_cost = self.inline.cost if self.inline else None
        self._adaptive = Adaptive(batching, draft_cost, constants)  # kept while another policy is in use
        self.guard = Guard(constants)  # pauses speculation that does not pay
        self._waited = 0.0  # seconds of waits and drafting since the last step
        self._ended_at: float | None = None  # when the last step ended; None: the engine was idle since then
        self._n_measured = self.cost.n_measured  # how many n were measured; a change ends a pause
        self.set_policy(policy, depth)

    # Commands of the front

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Change the policy; `depth` is for `fixed` and `sync`. Learned values are kept."""
        self._policy_name: PolicyName = policy
        self._depth = depth
        self._policy = self._make_policy(policy, depth)
        self.tuning.reset(policy, depth)
        self.guard.reset()

    def connect(self, backs: Sequence[str], sequences: Iterable[EngineSequence]) -> None:
        """Forget the measurements of all backs except `backs`; the drafts of the forgotten backs stay.

        sequences: all open sequences.
        """
        if {*backs} - {*self.forecast.arrivals.known}:
            self.guard.reset()
        self.forecast.connect(backs, self._own_sources, [each.drafts for each in sequences])

    def post_draft(self, target: EngineSequence | None, draft: Draft) -> None:
        """Store a back's draft for `target`; the draft may be stale. target None: the sequence has ended."""
        source = draft.source
        if target is None:
            self._n_stale[source] += 1
            return
        tree = DraftTree(source, draft.base, draft.tokens, draft.parents, draft.confidences)
        end = draft.base + len(tree.branch)
        alive = target.drafts.post(tree, draft.received_at)
        target.drafts.score(self.forecast.learn)
        self._n_stale[source] += not alive
        arrivals = self.forecast.arrivals
        arrivals.on_draft(target.drafts, source, draft.base, end, draft.received_at, alive=alive)
        if draft.waited_ms is not None and draft.drafted_ms is not None:
            arrivals.on_parts(source, draft.waited_ms / 1000, draft.drafted_ms / 1000)

    def describe(self) -> dict[str, Any]:
        """Return the record for `GET /v1/speculation`: learned values and counts."""
        return {
            "policy": self._policy_name,
            "depth": self._depth,
            "n_ahead": self.tuning.n_ahead,
            "min_confidence": round(self.tuning.min_confidence, 3),
            "step_ms": {str(n): round(1000 * seconds, 3) for n, seconds in self.cost.table().items()},
            **self.stats.describe(),
            **({self.inline.drafter.source: self.inline.describe()} if self.inline else {}),
            "sources": {source: self.forecast.describe(source) for source in self.forecast.sources},
        }

    # Calls of the scheduler

    def open(self, sequence: EngineSequence, now: float) -> None:
        """Begin a sequence; its list of tokens is read from now on."""
        lookups = self._make_drafters(sequence.request)
        sequence.drafts = Drafts(sequence.id, sequence.text, lookups, now)
        self._own_sources.update(lookups)
        self._ended_at = None
        if self.inline:
            self.inline.open(sequence.drafts, sequence.request.sampling)

    def close(self, sequence: EngineSequence) -> None:
        sequence.drafts.close()
        if self.inline:
            self.inline.close(sequence.drafts)

    def plan(self, generating: Sequence[Slot], n_prompt: int, now: float) -> Choice:
        """Return the drafts to verify in the slots whose next token is due, or an action to take first.

        n_prompt: the number of prompt tokens in the batch.
        """
        if self._policy_name == "off" or self._is_pausing(generating):
            return Verify([()] * len(generating))
        candidates = [self._candidate(slot, slot.sequence, now) for slot in generating if slot.sequence]
        match choice := self._choose(candidates, n_prompt):
            case Verify(drafts) if sizes := self._batch_sizes:
                filled = zip(candidates, drafts, strict=True)
                return Verify([self._fill(each, draft, sizes) for each, draft in filled])
            case _:
                return choice

    def width(self, n_tokens: int, n_draft: int) -> int:
        """Return the batch size in which to decode a step of `n_tokens` tokens, of which `n_draft` are draft
        tokens.
        """
        if self.guard.is_pausing or self._policy_name != "adaptive":
            return n_tokens
        return self._batching.widths.width(n_tokens, n_draft)

    def on_commit(self, committed: Verification, now: float) -> None:
        """Record the tokens that a step gave one sequence. now: the time at which backs get them. The caller
        must call `count` afterwards.
        """
        drafts = committed.drafts
        drafts.extend(committed.start, committed.tokens, now)
        committed.is_covered = committed.has_rejected and bool(drafts.trees.keys() - drafts.lookups.keys())

    def count(self, committed: Verification) -> Committed:
        """Learn from the verification passed to `on_commit`; return its event with the backs' right tokens.

        The next step need not wait for this call.
        """
        drafts = committed.drafts
        drafts.score(self.forecast.learn)
        event = committed.event(drafts.pop_right(except_of=self._own_sources))
        self.stats.add_committed(event, covered=committed.is_covered)
        return event

    def on_step(self, step: StepReport) -> None:
        """Update statistics, T(n) and tuning after a step. Call `count` for each of its sequences first."""
        n_sequences, waited = len(step.depths), self._waited
        self.stats.add_step(step, self.cost.seconds(step.n_tokens), waited)
        settled = self.cost.learn_next(step.n_tokens, step.seconds) if step.n_passes == 1 else 0.0
        is_adaptive = self._policy is self._adaptive
        if is_adaptive and step.n_expected is not None:
            self._adaptive.learn(n_sequences, step.n_committed, step.seconds + waited)
            began = step.ended_at - step.seconds - waited if self._ended_at is None else self._ended_at
            plain = self.cost.seconds(n_sequences)
            self.guard.learn(n_sequences, step.n_expected, step.ended_at - began - settled, plain)
        self._ended_at = step.ended_at
        if self.inline:
            self.inline.on_step(step.seconds + waited)
        self._waited = 0.0
        if self.guard.is_pausing:
            self.tuning.pause()
            return
        self.tuning.note_step(step.depths, step.n_committed, step.seconds + waited)
        if is_adaptive and self.stats.n_steps % self._constants.tune_every == 0:
            self.tuning.update(n_sequences, self.forecast.arrivals.slowest_first, self.cost)

    # Calls of the loop

    def on_wait(self, seconds: float) -> None:
        """Record that the engine waited for drafts, as planned, for `seconds`."""
        self.stats.wait_seconds += seconds
        self._waited += seconds

    def draft(self, order: DraftOrder) -> DraftRound:
        """Run one round of drafting in the engine; call `on_drafted` afterwards."""
        assert self.inline
        source = self.inline.drafter.source
        n_tokens, grown = self.inline.draft(order)
        left = []
        for drafts in grown:
            assert drafts.inline
            drafts.post_own(source, *drafts.inline.continuation)
            probabilities, _ = self.forecast.outlook(drafts, source)
            if math.prod(probabilities) >= order.min_probability and drafts.n_pending:
                left.append(drafts)
        rest = order._replace(sequences=tuple(left), n_rounds=order.n_rounds - 1)
        return DraftRound(n_tokens, len(grown), rest if left and rest.n_rounds > 0 else None)

    def on_drafted(self, done: DraftRound, seconds: float) -> None:
        assert self.inline
        self.inline.on_round(done.n_tokens, done.n_drafted, seconds)
        self.stats.draft_seconds += seconds
        self._waited += seconds

    def pop_events(self) -> list[BackEvent]:
        """Return the events for the front since the last call."""
        events: list[BackEvent] = [
            DraftsDropped(source=source, n_stale=n) for source, n in self._n_stale.items() if n
        ]
        self._n_stale.clear()
        tuned = self.tuning.pop_change()
        return events if tuned is None else [*events, tuned]

    # What may be chosen

    def _is_pausing(self, generating: Sequence[Slot]) -> bool:
        """Return whether speculation pauses. A new T(n), or lookups that were right, end the pause."""
        if self._n_measured != self.cost.n_measured:
            self._n_measured = self.cost.n_measured
            self.guard.reset()
        every = self._constants.look_every
        if self.guard.is_pausing and self.guard.n_left % every == 0:
            for drafts in [slot.sequence.drafts for slot in generating if slot.sequence]:
                if drafts.n_looked_up >= every:
                    self.guard.resume()
                drafts.ask_lookups(self._constants.enough_local_tokens, self._constants.max_local_tokens)
        return self.guard.is_pausing

    def _make_policy(self, policy: PolicyName, depth: int) -> Policy:
        match policy:
            case "adaptive":
                return self._adaptive
            case "fixed":
                return Fixed(depth)
            case "sync":
                return Sync(depth)
            case "off":
                return Fixed(0)

    def _candidate(self, slot: Slot, target: EngineSequence, now: float) -> Candidate:
        drafts = target.drafts
        n_useful, n_fed = slot.n_useful(self._batch_sizes), slot.n_to_decode
        if n_useful <= 0:
            return Candidate(drafts, 0, n_fed)
        policy, constants = self._policy_name, self._constants
        if policy != "sync":  # which represents engines without drafters of their own
            drafts.ask_lookups(constants.enough_local_tokens, constants.max_local_tokens)
        min_probability = constants.min_probability if policy == "adaptive" else 0.0
        chain = self.forecast.best(drafts, min_probability)
        return Candidate(
            drafts,
            n_useful,
            n_fed,
            chain[:n_useful],
            awaited=tuple(self._awaited(drafts, n_useful, now)) if policy == "adaptive" else (),
            inline=self._inline_offer(slot, target, n_useful) if self.inline else None,
            n_inline=self._n_inline(chain),
            is_drafting=policy == "sync" and self._is_drafting(drafts, chain, now),
        )

    def _awaited(self, drafts: Drafts, n_useful: int, now: float) -> Iterable[FutureDraft]:
        """Yield the tokens that backs are about to add."""
        for source in drafts.by_source:
            awaited = self.forecast.awaited(drafts, source, n_useful, now)
            if awaited and not self._is_complete(drafts.branch(source)):
                yield awaited

    def _is_complete(self, branch: DraftChain) -> bool:
        """Return whether a back that obeys `Tune` has stopped drafting at the end of this branch."""
        if not branch:
            return False
        confidence = math.prod(each.confidence for each in branch if each.confidence is not None)
        return (
            len(branch) >= self.tuning.n_ahead
            or branch[-1].token in self._end_tokens
            or confidence < self.tuning.min_confidence
        )

    def _is_drafting(self, drafts: Drafts, best: DraftChain, now: float) -> bool:
        has_ended = bool(best) and best[-1].token in self._end_tokens
        return not has_ended and self.forecast.arrivals.is_drafting(drafts, now, SYNC_PATIENCE_S)

    def _inline_offer(self, slot: Slot, target: EngineSequence, n_useful: int) -> FutureDraft | None:
        drafts = target.drafts
        if self.inline is None or drafts.inline is None:
            return None
        drafts.inline.place(slot.index, target.context)
        source = self.inline.drafter.source
        mean = self.forecast.upper_mean(source)
        n_max = min(n_useful, self.inline.drafter.n_max)
        future = self.forecast.future(drafts, source, mean, n_useful, n_max)
        return self.inline.offer(drafts, future, target.n_left)

    def _n_inline(self, chain: DraftChain) -> int:
        if self.inline is None:
            return 0
        source = self.inline.drafter.source
        return [each.source for each in chain].count(source)

    # What was chosen

    def _choose(self, candidates: Sequence[Candidate], n_prompt: int) -> Choice:
        choice = self._policy.choose(candidates, n_prompt)
        if isinstance(choice, DraftOrder):
            nobody_waits = n_prompt == 0 and len(candidates) == 1
            return choice._replace(at_once=nobody_waits)
        if self.inline is None or self._policy_name != "adaptive" or isinstance(choice, Wait):
            return choice
        return self._explored(self.inline, candidates) or choice

    def _explored(self, inline: InlineDrafting, candidates: Sequence[Candidate]) -> DraftOrder | None:
        """Now and then, order one inline token for a sequence that has none, so that it is scored."""
        source = inline.drafter.source
        drafted_for = [each.drafts for each in candidates if each.n_useful > 0]
        idle = [each for each in drafted_for if not each.branch(source)]
        explored = inline.exploration(
            idle, self.forecast.upper_mean(source), self.cost.seconds(len(candidates))
        )
        return DraftOrder((explored,), at_once=True) if explored else None

    def _fill(self, candidate: Candidate, draft: DraftChain, sizes: BatchSizes) -> DraftChain:
        """Return `draft` with its padding filled: more tokens of the chain, then guesses."""
        n_wanted = len(draft) + sizes.n_padding(candidate.n_fed + len(draft))
        filled = candidate.chain[:n_wanted]
        n_left = min(n_wanted, candidate.n_useful) - len(filled)
        if n_left <= 0 or NGRAM not in candidate.drafts.lookups:
            return filled
        return [*filled, *candidate.drafts.guesses(filled, n_left, NGRAM)]
