"""The board: the current drafts of each sequence, one per source.

A draft stays while it agrees with the committed tokens: after a step that accepted its first tokens the rest
is still a draft; after a rejection a side branch may be. Every source is scored by what is committed, whether
its draft was verified or not. Knows nothing of models, time or networks.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lead.engine.speculation.draft_chain import EMPTY_CHAIN, DraftChain
from lead.engine.speculation.draft_tree import DraftToken, DraftTree
from lead.engine.speculation.merge import (
    Agreement,
    EstimateAcceptance,
    agreement_on,
    best_chain,
    probabilities_behind,
    probabilities_of,
)


class TokenOutcome(NamedTuple):
    """A proposed token, compared with the committed one; those before it were right.

    `place` 0 is the token that directly followed the committed ones when they were extended. `beside`: how
    likely what another source proposed there seemed to be.
    """

    source: str
    confidence: float | None
    agreement: Agreement
    place: int
    right: bool
    beside: float | None = None


class PostResult(NamedTuple):
    """Whether a posted draft may still be accepted, and the outcomes of tokens in it that are settled."""

    alive: bool
    outcomes: list[TokenOutcome]


@dataclass(slots=True)
class _SequenceDrafts:
    """scored[source]: outcomes of a source are known up to this position."""

    trees: dict[str, DraftTree] = field(default_factory=dict)
    scored: dict[str, int] = field(default_factory=dict)


class Board:
    """`committed` is always the sequence's committed tokens; it is not modified."""

    def __init__(self) -> None:
        self._drafts: dict[str, _SequenceDrafts] = {}
        self._n_stale: Counter[str] = Counter()

    def open(self, sequence: str) -> None:
        """Take drafts for `sequence` from now on."""
        self._drafts[sequence] = _SequenceDrafts()

    def close(self, sequence: str) -> None:
        """Forget `sequence`; drafts that still arrive for it are stale."""
        self._drafts.pop(sequence, None)

    def post(self, sequence: str, source: str, tree: DraftTree, committed: Sequence[int]) -> PostResult:
        """Store a draft if it is alive.

        With m = len(committed) ≥ base it is alive iff committed[base : m] is a path in the tree that goes on
        below. It does not replace a draft of its source that knew more committed tokens, or as many and is
        longer: messages may overtake each other.
        """
        drafts = self._drafts.get(sequence)
        if drafts is None or tree.base > len(committed):
            self._n_stale[source] += 1
            return PostResult(alive=False, outcomes=[])
        outcomes = self._catch_up(drafts, source, tree, committed)
        if not tree.alive:
            self._n_stale[source] += 1
        elif not _outdated(tree, drafts.trees.get(source)):
            drafts.trees[source] = tree
        return PostResult(tree.alive, outcomes)

    def extend(
        self, sequence: str, start: int, tokens: Sequence[int], estimate: EstimateAcceptance | None = None
    ) -> list[TokenOutcome]:
        """committed[start : start + len(tokens)] = tokens. Drafts that conflict with them are removed.

        estimate: how likely tokens seemed to be (`TokenOutcome.beside`).
        """
        drafts = self._drafts[sequence]
        outcomes: list[TokenOutcome] = []
        for place, token in enumerate(tokens):
            here = [(source, draft) for source, tree in drafts.trees.items() if (draft := tree.next())]
            if not here:
                break
            proposed = [draft.token for _, draft in here]
            for source, (drafted, confidence) in here:
                agreement = agreement_on(drafted, proposed)
                right, beside = drafted == token, estimate and _beside(here, source, estimate)
                outcomes.append(TokenOutcome(source, confidence, agreement, place, right, beside))
                drafts.scored[source] = start + place + 1
            for tree in drafts.trees.values():
                tree.step(token)
        drafts.trees = {source: tree for source, tree in drafts.trees.items() if tree.alive}
        return outcomes

    def main_branch(self, sequence: str, source: str) -> Sequence[DraftToken]:
        """What one source proposes, without side branches; empty if it has no draft."""
        tree = self._drafts[sequence].trees.get(source)
        return tree.main_branch() if tree else []

    def sources(self, sequence: str) -> Iterable[str]:
        """Those with a draft for `sequence`."""
        return self._drafts[sequence].trees

    def best(self, sequence: str, estimate: EstimateAcceptance, min_survival: float = 0.0) -> DraftChain:
        """See `merge.best_chain`."""
        drafts = self._drafts.get(sequence)
        if drafts is None or not drafts.trees:
            return EMPTY_CHAIN
        branches = {source: tree.main_branch() for source, tree in drafts.trees.items()}
        return best_chain(branches, estimate, min_survival)

    def probabilities(self, sequence: str, source: str, estimate: EstimateAcceptance) -> tuple[float, ...]:
        """Of what one source proposes, without side branches: `merge.probabilities_of`; empty if nothing."""
        trees = self._drafts[sequence].trees
        if source not in trees:
            return ()
        return probabilities_of({name: tree.main_branch() for name, tree in trees.items()}, source, estimate)

    def probabilities_behind(
        self, sequence: str, source: str, estimate: EstimateAcceptance
    ) -> tuple[float, ...]:
        """Of what others propose behind what `source` does: `merge.probabilities_behind`."""
        branches = {name: tree.main_branch() for name, tree in self._drafts[sequence].trees.items()}
        return probabilities_behind(branches, source, estimate)

    def pop_stale(self) -> dict[str, int]:
        """How many drafts of each source were stale on arrival since the last call."""
        n_stale = dict(self._n_stale)
        self._n_stale.clear()
        return n_stale

    def describe(self) -> dict[str, Any]:
        """Whose drafts there are, by sequence: for the log of a failed check."""
        return {sequence: list(drafts.trees) for sequence, drafts in self._drafts.items()}

    def check_integrity(self, sequences: set[str]) -> None:
        """Raise AssertionError unless there are records of exactly `sequences`, and live drafts only."""
        assert set(self._drafts) == sequences, f"board has {set(self._drafts)}, expected {sequences}"
        for drafts in self._drafts.values():
            assert all(tree.alive for tree in drafts.trees.values()), "a dead draft on the board"

    def _catch_up(
        self, drafts: _SequenceDrafts, source: str, tree: DraftTree, committed: Sequence[int]
    ) -> list[TokenOutcome]:
        """Move a new draft's cursor past the committed tokens, with the outcomes that are not known yet.

        Looks at no more tokens than the draft has, however old it is.
        """
        outcomes = []
        for position in range(tree.base, len(committed)):
            proposed = tree.next()
            if proposed is None:  # it has ended, or conflicts with what was committed
                break
            if position >= drafts.scored.get(source, 0):
                right = proposed.token == committed[position]
                place = position - tree.base
                outcomes.append(TokenOutcome(source, proposed.confidence, "single", place, right))
                drafts.scored[source] = position + 1
            tree.step(committed[position])
        return outcomes


def _beside(
    here: Sequence[tuple[str, DraftToken]], source: str, estimate: EstimateAcceptance
) -> float | None:
    """How likely the likeliest token of the other sources is, as far as these know; None: there is none."""
    others = (estimate(name, draft.confidence, "single") for name, draft in here if name != source)
    return max(others, default=None)


def _outdated(tree: DraftTree, current: DraftTree | None) -> bool:
    return current is not None and (tree.base, len(tree)) < (current.base, len(current))
