"""The board: the drafts that are pinned up for each sequence, by source.

Holds at most one draft per source and sequence. A draft stays on the board while it agrees with what is
committed: after a step that accepted its first tokens, the rest is still a draft; after a rejection a side
branch may be. Every source is scored by what is committed, whether its draft was verified or not.
Knows nothing of models, time or networks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import Literal, NamedTuple

from lead.engine.speculation.draft_tree import DraftToken, DraftTree

Company = Literal["alone", "agreed", "disputed"]
"""Of a proposed token: nobody else proposed one there, somebody the same, or all others another."""

Chance = Callable[[str, float | None, Company], float]
"""How likely a token of (source, confidence, company) is right, if those before it are."""

_MOST_TOKENS = 32

_Chosen = tuple[int, str, float]
"""A token, who proposed it, and the chance that it is right."""


class Trial(NamedTuple):
    """One token of a source held against the committed one; those before it were right.

    `place` 0 is the token that directly followed the committed ones when they were extended.
    """

    source: str
    confidence: float | None
    company: Company
    place: int
    right: bool


class Proposal(NamedTuple):
    """A line of draft tokens to follow the committed ones.

    chances[i]: that token i is right, if those before it are.
    """

    tokens: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    chances: tuple[float, ...] = ()

    def cut(self, n: int) -> "Proposal":
        """Its first `n` tokens."""
        if n >= len(self.tokens):
            return self
        return Proposal(self.tokens[:n], self.sources[:n], self.chances[:n])


NOTHING = Proposal()


class Posted(NamedTuple):
    """Whether a draft may still come true, and what its tokens in the past say about its source."""

    lives: bool
    trials: list[Trial]


@dataclass(slots=True)
class _Pinned:
    """The drafts for one sequence. scored[source]: up to which position a source has been judged."""

    trees: dict[str, DraftTree] = field(default_factory=dict)
    scored: dict[str, int] = field(default_factory=dict)


class Board:
    """`committed` is always the sequence's committed tokens; it is not modified."""

    def __init__(self) -> None:
        self._pinned: dict[str, _Pinned] = {}
        self._stale: Counter[str] = Counter()

    def open(self, sequence: str) -> None:
        """Take drafts for `sequence` from now on."""
        self._pinned[sequence] = _Pinned()

    def close(self, sequence: str) -> None:
        """Forget `sequence`; drafts that still arrive for it are stale."""
        self._pinned.pop(sequence, None)

    def post(self, sequence: str, source: str, tree: DraftTree, committed: Sequence[int]) -> Posted:
        """Pin up a draft if it lives.

        With m = len(committed) ≥ base it lives iff committed[base : m] lie in the tree and something follows
        them. It does not replace a draft of its source that knew more of the text, or as much and is longer:
        messages may overtake each other.
        """
        pinned = self._pinned.get(sequence)
        if pinned is None or tree.base > len(committed):
            self._stale[source] += 1
            return Posted(lives=False, trials=[])
        trials = self._catch_up(pinned, source, tree, committed)
        if not tree.alive:
            self._stale[source] += 1
        elif not _outdated(tree, pinned.trees.get(source)):
            pinned.trees[source] = tree
        return Posted(tree.alive, trials)

    def extend(self, sequence: str, start: int, tokens: Sequence[int]) -> list[Trial]:
        """committed[start : start + len(tokens)] = tokens. Drafts that are dead now are removed."""
        pinned = self._pinned[sequence]
        trials: list[Trial] = []
        for place, token in enumerate(tokens):
            drafts = [(source, draft) for source, tree in pinned.trees.items() if (draft := tree.proposed())]
            if not drafts:
                break
            proposed = [draft.token for _, draft in drafts]
            for source, (drafted, confidence) in drafts:
                company = _company(drafted, proposed)
                trials.append(Trial(source, confidence, company, place, drafted == token))
                pinned.scored[source] = start + place + 1
            for tree in pinned.trees.values():
                tree.step(token)
        pinned.trees = {source: tree for source, tree in pinned.trees.items() if tree.alive}
        return trials

    def line_of(self, sequence: str, source: str) -> Sequence[DraftToken]:
        """What one source proposes; empty if nothing of it lives."""
        tree = self._pinned[sequence].trees.get(source)
        return tree.line() if tree else []

    def sources(self, sequence: str) -> Iterable[str]:
        """Those who have a live draft for `sequence`."""
        return self._pinned[sequence].trees

    def best(self, sequence: str, chance: Chance, least_survival: float = 0.0) -> Proposal:
        """The line with the largest expected number of right tokens, whoever proposed which part of it.

        It ends where the chance that all of it is right falls below `least_survival`.
        """
        pinned = self._pinned.get(sequence)
        if pinned is None or not pinned.trees:
            return Proposal()
        lines = {source: tree.line() for source, tree in pinned.trees.items()}
        return _Merge(lines, chance, least_survival).best()

    def take_stale(self) -> dict[str, int]:
        """Drafts dropped on arrival since the last call, by source."""
        stale = dict(self._stale)
        self._stale.clear()
        return stale

    def check_integrity(self, sequences: set[str]) -> None:
        """Raise AssertionError unless the board knows exactly `sequences`, and only live drafts."""
        assert set(self._pinned) == sequences, f"board has {set(self._pinned)}, expected {sequences}"
        for pinned in self._pinned.values():
            assert all(tree.alive for tree in pinned.trees.values()), "a dead draft on the board"

    def _catch_up(
        self, pinned: _Pinned, source: str, tree: DraftTree, committed: Sequence[int]
    ) -> list[Trial]:
        """Move a new draft's cursor to the end of what is committed, scoring positions not yet scored."""
        trials = []
        for position in range(tree.base, len(committed)):
            proposed = tree.proposed()
            if proposed and position >= pinned.scored.get(source, 0):
                right = proposed.token == committed[position]
                place = position - tree.base
                trials.append(Trial(source, proposed.confidence, "alone", place, right))
                pinned.scored[source] = position + 1
            tree.step(committed[position])
        return trials


def _outdated(tree: DraftTree, pinned: DraftTree | None) -> bool:
    return pinned is not None and (tree.base, len(tree)) < (pinned.base, len(pinned))


def _company(token: int, proposed: Sequence[int]) -> Company:
    if len(proposed) == 1:
        return "alone"
    return "agreed" if proposed.count(token) > 1 else "disputed"


class _Merge:
    """Several lines over the same place as one tree: where they agree they are one."""

    def __init__(
        self, lines: Mapping[str, Sequence[DraftToken]], chance: Chance, least_survival: float
    ) -> None:
        self._lines = lines
        self._chance = chance
        self._least_survival = least_survival

    def best(self) -> Proposal:
        chosen = self._best_after(list(self._lines), 0, 1.0)
        return Proposal(*zip(*chosen, strict=True)) if chosen else NOTHING

    def _best_after(self, sources: list[str], place: int, survival: float) -> list[_Chosen]:
        """The best line from `place` on among those of `sources`, which agree up to there."""
        if len(sources) == 1:
            return self._alone(sources[0], place, survival)
        chosen: list[_Chosen] = []
        for here in range(place, _MOST_TOKENS):
            drafts = [
                (source, self._lines[source][here]) for source in sources if here < len(self._lines[source])
            ]
            if not drafts or survival < self._least_survival:
                break
            tokens = [draft.token for _, draft in drafts]
            if tokens.count(tokens[0]) < len(tokens):
                return chosen + self._best_fork(drafts, here, survival)
            if len(drafts) == 1:
                return chosen + self._alone(drafts[0][0], here, survival)
            best = self._likeliest(drafts, "agreed")
            chosen.append(best)
            survival *= best[2]
            sources = [source for source, _ in drafts]
        return chosen

    def _alone(self, source: str, place: int, survival: float) -> list[_Chosen]:
        """The rest of one source's line, where nobody else proposes anything."""
        chosen: list[_Chosen] = []
        for token, confidence in self._lines[source][place:_MOST_TOKENS]:
            if survival < self._least_survival:
                break
            chance = self._chance(source, confidence, "alone")
            chosen.append((token, source, chance))
            survival *= chance
        return chosen

    def _best_fork(self, drafts: list[tuple[str, DraftToken]], place: int, survival: float) -> list[_Chosen]:
        """Of the tokens proposed at `place`, the one with which most tokens are expected to be right."""
        tokens = [draft.token for _, draft in drafts]
        forks = []
        for token in dict.fromkeys(tokens):
            agreeing = [(source, draft) for source, draft in drafts if draft.token == token]
            first = self._likeliest(agreeing, _company(token, tokens))
            rest = self._best_after([source for source, _ in agreeing], place + 1, survival * first[2])
            forks.append([first, *rest])
        return max(forks, key=_expected)

    def _likeliest(self, drafts: Sequence[tuple[str, DraftToken]], company: Company) -> _Chosen:
        """The one token that `drafts` propose, by the source that is most often right about such ones."""
        chance, source = max((self._chance(source, draft[1], company), source) for source, draft in drafts)
        return drafts[0][1].token, source, chance


def _expected(line: Sequence[_Chosen]) -> float:
    """How many of its tokens will be right."""
    return float(sum(accumulate((chance for _, _, chance in line), mul)))
