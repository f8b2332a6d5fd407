"""Speculation as the scheduler sees it: drafts go in, choices come out, and commits are learned from.

Ties the board (what is proposed) to the planner (what to do about it), and asks the sources that live in the
lead itself, such as n-grams.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from lead.engine.commands import PolicyName, PostDraft, Submit
from lead.engine.events import Committed, Tuned
from lead.engine.slot import EngineSequence
from lead.engine.speculation.board import NOTHING, Board, Proposal
from lead.engine.speculation.draft_tree import DraftTree
from lead.engine.speculation.planner import Planner, Step
from lead.engine.speculation.policy import MOST_DEPTH, SYNC_PATIENCE_S, Offer, Prospect

_ENOUGH_OWN = 8
_MOST_OWN = 16
"""Tokens that a source in the lead is asked for: they cost time in every step."""
_LEAST_SURVIVAL = 0.01
"""Further along a draft no token would ever be worth a place in a batch; other policies do not ask."""


class OwnSource(Protocol):
    """A source inside the lead, for one sequence."""

    def draft(self, tokens: Sequence[int], n_most: int) -> tuple[list[int], list[float]]:
        """(tokens, confidences) to follow `tokens`, all that are committed; at most `n_most`."""


OwnSources = Callable[[Submit], Mapping[str, OwnSource]]
"""The sources in the lead for a request, by name."""


class Decision(NamedTuple):
    """What each generating sequence verifies; or, if `wait` > 0, nothing yet (see `policy.Choice`)."""

    proposals: list[Proposal]
    wait: float
    expected: float


class Speculation:
    """All of it but the verification."""

    def __init__(
        self,
        planner: Planner,
        end_tokens: frozenset[int],
        own_sources: OwnSources = lambda _: {},
    ) -> None:
        self._planner = planner
        self._board = Board()
        self._end_tokens = end_tokens
        self._make_own = own_sources
        self._own: dict[str, Mapping[str, OwnSource]] = {}
        self._own_names: set[str] = set()

    def open(self, request: Submit, now: float) -> None:
        """A sequence begins."""
        self._board.open(request.sequence)
        own = self._make_own(request)
        self._own[request.sequence] = own
        self._own_names.update(own)
        self._planner.arrivals.opened(request.sequence, len(request.tokens), now)

    def close(self, sequence: str) -> None:
        """A sequence has ended."""
        self._board.close(sequence)
        self._own.pop(sequence, None)
        self._planner.arrivals.closed(sequence)

    def connect(self, sources: Sequence[str]) -> None:
        """These backs are connected now; what is pinned up of others stays, they themselves are forgotten."""
        self._planner.arrivals.connected(sources)
        acceptance = self._planner.acceptance
        for gone in set(acceptance.sources) - {*sources, *self._own_names}:
            acceptance.forget(gone)

    def post(self, draft: PostDraft, committed: Sequence[int]) -> None:
        """A back proposes something; `committed` are the sequence's tokens."""
        tree = DraftTree(draft.base, draft.tokens, draft.parents, draft.confidences)
        arrivals = self._planner.arrivals
        n_line = len(tree.line())
        posted = self._board.post(draft.sequence, draft.source, tree, committed)
        self._planner.acceptance.learn(posted.trials)
        arrivals.posted(draft.sequence, draft.source, draft.base, draft.base + n_line, draft.received_at)
        if posted.lives:
            arrivals.lives(draft.sequence, draft.source)

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Choose in another way from now on."""
        self._planner.set_policy(policy, depth)

    def decide(self, running: Sequence[tuple[EngineSequence, int]], n_prompt: int, now: float) -> Decision:
        """For (sequence, most draft tokens that can be committed) of each that generates."""
        planner = self._planner
        if planner.name == "off":
            return Decision([NOTHING] * len(running), 0.0, len(running))
        offers = [self._offer(sequence, n_useful, now) for sequence, n_useful in running]
        choice = planner.choose(offers, n_prompt)
        proposals = [offer.proposal.cut(n) for offer, n in zip(offers, choice.depths, strict=True)]
        return Decision(proposals, choice.wait, choice.expected)

    def extend(self, sequence: str, step: Committed, now: float) -> None:
        """A step's tokens were committed; `now` is when the backs are told."""
        planner, board = self._planner, self._board
        before = list(board.sources(sequence))
        planner.acceptance.learn(board.extend(sequence, step.start, step.tokens))
        n_committed = step.start + len(step.tokens)
        planner.arrivals.committed(sequence, n_committed, now)
        after = set(board.sources(sequence))
        for source in before:
            if source not in after:
                planner.arrivals.died(sequence, source, n_committed)
        tally = planner.tally
        tally.n_committed += len(step.tokens)
        tally.n_draft_tokens += step.n_drafted
        tally.n_accepted_tokens += step.n_accepted
        if step.rejected:
            tally.n_recovered += 1
            tally.n_covered += bool(after - self._own[sequence].keys())

    def take_stale(self) -> dict[str, int]:
        """Drafts dropped on arrival since the last call, by source."""
        return self._board.take_stale()

    def take_tuned(self) -> Tuned | None:
        """What backs should be told."""
        return self._planner.take_tuned()

    def learn_wait(self, seconds: float) -> None:
        """The engine waited for drafts."""
        self._planner.learn_wait(seconds)

    def learn_step(self, step: Step) -> None:
        """What a step took and gave."""
        self._planner.learn_step(step)

    def describe(self) -> dict[str, Any]:
        """See `Planner.describe`."""
        return self._planner.describe()

    def check_integrity(self, sequences: set[str]) -> None:
        """Raise AssertionError unless the books are right."""
        self._board.check_integrity(sequences)
        assert self._own.keys() == sequences, f"own sources of {set(self._own)}, expected {sequences}"

    def _offer(self, sequence: EngineSequence, n_useful: int, now: float) -> Offer:
        if n_useful <= 0:
            return Offer(NOTHING, 0)
        planner = self._planner
        if planner.name != "sync":  # which stands for what others do
            self._ask_own(sequence)
        least = _LEAST_SURVIVAL if planner.name == "adaptive" else 0.0
        best = self._board.best(sequence.id, planner.acceptance.chance, least)
        offer = Offer(best.cut(min(n_useful, MOST_DEPTH)), n_useful)
        match planner.name:
            case "adaptive":
                return offer._replace(prospects=self._prospects(sequence.id, now))
            case "sync":
                ended = bool(best.tokens) and best.tokens[-1] in self._end_tokens
                at_work = not ended and planner.arrivals.at_work(sequence.id, now, SYNC_PATIENCE_S)
                return offer._replace(at_work=at_work)
            case _:
                return offer

    def _ask_own(self, sequence: EngineSequence) -> None:
        for name, source in self._own[sequence.id].items():
            if len(self._board.line_of(sequence.id, name)) >= _ENOUGH_OWN:
                continue  # what it proposed before is coming true
            tokens, confidences = source.draft(sequence.tokens, _MOST_OWN)
            if tokens:
                tree = DraftTree(len(sequence.tokens), tokens, None, confidences)
                self._board.post(sequence.id, name, tree, sequence.tokens)

    def _prospects(self, sequence: str, now: float) -> tuple[Prospect, ...]:
        """What backs are about to add."""
        acceptance, arrivals = self._planner.acceptance, self._planner.arrivals
        prospects = []
        for source in arrivals.sources(sequence):
            arrival = arrivals.expected(sequence, source, now)
            line = self._board.line_of(sequence, source) if arrival else []
            if arrival is None or self._complete(line):
                continue
            chances = tuple(acceptance.chance(source, draft.confidence, "alone") for draft in line)
            prospects.append(Prospect(chances, acceptance.mean(source), arrival))
        return tuple(prospects)

    def _complete(self, line: Sequence[Any]) -> bool:
        """Whether a back that follows `Tuned` has stopped here."""
        if not line:
            return False
        confidence = math.prod(1.0 if draft.confidence is None else draft.confidence for draft in line)
        return (
            len(line) >= self._planner.n_ahead
            or line[-1].token in self._end_tokens
            or confidence < self._planner.min_confidence
        )
