"""The drafts of a sequence, one tree per source, and the best chain among them.

A draft stays while it agrees with the committed tokens: after a step that accepted its first tokens the rest
is still a draft; after a rejection a side branch may be. Every source is scored by what is committed, whether
its draft was verified or not. Knows nothing of models, time or networks.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Literal, NamedTuple

MAX_DEPTH = 32
"""No step verifies more draft tokens of a sequence."""

Agreement = Literal["single", "agreed", "conflicting"]
"""For a proposed token: no other source proposed one; one proposed the same; all others proposed another."""

EstimateAcceptance = Callable[[str, float | None, Agreement], float]
"""The probability that a token of (source, confidence, agreement) is accepted if those before it are."""


class DraftToken(NamedTuple):
    """A proposed token. `confidence` is its source's own; None if the source gives none."""

    token: int
    confidence: float | None


class DraftChain(NamedTuple):
    """Tokens to follow the committed ones, and the source of each.

    probabilities[i]: that token i is accepted if those before it are.
    """

    tokens: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()

    def cut(self, n: int) -> "DraftChain":
        """Its first `n` tokens."""
        if n >= len(self.tokens):
            return self
        return DraftChain(self.tokens[:n], self.sources[:n], self.probabilities[:n])

    def extended(self, tokens: Sequence[int], source: str) -> "DraftChain":
        """Followed by mere guesses."""
        n = len(tokens)
        return DraftChain(
            (*self.tokens, *tokens), (*self.sources, *[source] * n), (*self.probabilities, *[0.0] * n)
        )


EMPTY_CHAIN = DraftChain()


class TokenOutcome(NamedTuple):
    """A proposed token, compared with the committed one; those before it were right.

    `place` 0 is the token that directly followed the committed ones when they were extended. `position` is
    that in the text.
    """

    source: str
    confidence: float | None
    agreement: Agreement
    place: int
    position: int
    right: bool


class DraftTree:
    """The tokens follow the first `base` committed ones, as `shared.protocol.Draft` says.

    The cursor is at the last committed token as long as the committed tokens are a path in the tree; what may
    still be accepted is below it. It starts at the root; `step` moves it.
    """

    __slots__ = ("_children", "_confidences", "_main_branch", "_next", "_tokens", "base")

    def __init__(
        self,
        base: int,
        tokens: Sequence[int],
        parents: Sequence[int] | None = None,
        confidences: Sequence[float] | None = None,
    ) -> None:
        self.base = base
        self._tokens = tokens
        self._confidences = confidences
        self._children: list[list[int]] | None = None  # of node i at i + 1; None: a chain
        if parents is not None:
            self._children = [[] for _ in range(len(tokens) + 1)]
            for node, parent in enumerate(parents):
                self._children[parent + 1].append(node)
        self._next = self._following(-1)  # the nodes directly below the cursor
        self._main_branch: list[DraftToken] | None = None  # asked for several times in each step

    def __len__(self) -> int:
        """All its tokens, including those above the cursor."""
        return len(self._tokens)

    @property
    def alive(self) -> bool:
        """Whether any of its tokens may still be accepted."""
        return bool(self._next)

    def next(self) -> DraftToken | None:
        """The token directly below the cursor, on the first branch."""
        return self._at(self._next[0]) if self._next else None

    def step(self, token: int) -> None:
        """`token` was committed."""
        self._main_branch = None
        for node in self._next:
            if self._tokens[node] == token:
                self._next = self._following(node)
                return
        self._next = ()

    def main_branch(self) -> Sequence[DraftToken]:
        """What it proposes from the cursor on: the first branch at every fork."""
        if self._main_branch is None:
            self._main_branch = self._first_branches()
        return self._main_branch

    def _first_branches(self) -> list[DraftToken]:
        if self._children is None:
            start = self._next[0] if self._next else len(self._tokens)
            return [self._at(node) for node in range(start, len(self._tokens))]
        branch, following = [], self._next
        while following:
            branch.append(self._at(following[0]))
            following = self._children[following[0] + 1]
        return branch

    def _following(self, node: int) -> Sequence[int]:
        if self._children is not None:
            return self._children[node + 1]
        return (node + 1,) if node + 1 < len(self._tokens) else ()

    def _at(self, node: int) -> DraftToken:
        return DraftToken(self._tokens[node], self._confidences[node] if self._confidences else None)


class Drafts:
    """The current drafts of one sequence. `committed` is always the list of its committed tokens."""

    __slots__ = ("_committed", "_scored", "_trees")

    def __init__(self, committed: Sequence[int]) -> None:
        self._committed = committed
        self._trees: dict[str, DraftTree] = {}
        self._scored: dict[str, int] = {}  # outcomes of a source are known up to this position

    def post(self, source: str, tree: DraftTree) -> tuple[bool, list[TokenOutcome]]:
        """Store a draft if it is alive; returns whether it is, and the outcomes of tokens that are settled.

        With m = len(committed) ≥ base it is alive iff committed[base : m] is a path in the tree that goes on
        below. It does not replace a draft of its source that knew more committed tokens, or as many and is
        longer: messages may overtake each other.
        """
        if tree.base > len(self._committed):
            return False, []
        outcomes = self._catch_up(source, tree)
        if tree.alive and not _outdated(tree, self._trees.get(source)):
            self._trees[source] = tree
        return tree.alive, outcomes

    def extend(self, start: int, tokens: Sequence[int]) -> list[TokenOutcome]:
        """committed[start : start + len(tokens)] = tokens. Drafts that conflict with them are removed."""
        outcomes: list[TokenOutcome] = []
        for place, token in enumerate(tokens):
            here = [(source, draft) for source, tree in self._trees.items() if (draft := tree.next())]
            if not here:
                break
            proposed = [draft.token for _, draft in here]
            position = start + place
            for source, (drafted, confidence) in here:
                agreement = _agreement_on(drafted, proposed)
                outcomes.append(
                    TokenOutcome(source, confidence, agreement, place, position, drafted == token)
                )
                self._scored[source] = position + 1
            for tree in self._trees.values():
                tree.step(token)
        self._trees = {source: tree for source, tree in self._trees.items() if tree.alive}
        return outcomes

    @property
    def sources(self) -> list[str]:
        """Those that have a draft."""
        return list(self._trees)

    def main_branch(self, source: str) -> Sequence[DraftToken]:
        """What one source proposes, without side branches; empty if it has no draft."""
        tree = self._trees.get(source)
        return tree.main_branch() if tree else []

    def best(self, estimate: EstimateAcceptance, min_survival: float = 0.0) -> DraftChain:
        """The chain with the most expected accepted tokens; its parts may come from different sources.

        It ends where the probability that all of it is accepted falls below `min_survival`.
        """
        if not self._trees:
            return EMPTY_CHAIN
        chosen = _Merge(self._main_branches(), estimate, min_survival).after(list(self._trees), 0, 1.0)
        return DraftChain(*zip(*chosen, strict=True)) if chosen else EMPTY_CHAIN

    def probabilities(self, source: str, estimate: EstimateAcceptance) -> tuple[float, ...]:
        """For each token that `source` proposes, the probability that it is accepted if those before it are.

        Other sources count that agree with all tokens before it: they agree with this one, too, or conflict.
        """
        if source not in self._trees:
            return ()
        branches = self._main_branches()
        if len(branches) == 1:
            return tuple(estimate(source, each.confidence, "single") for each in branches[source])
        probabilities, sources = [], list(branches)
        for place, own in enumerate(branches[source]):
            here = [(each, branches[each][place]) for each in sources if place < len(branches[each])]
            agreement = _agreement_on(own.token, [draft.token for _, draft in here])
            agreeing = [(each, draft) for each, draft in here if draft.token == own.token]
            probabilities.append(max(estimate(each, draft.confidence, agreement) for each, draft in agreeing))
            sources = [each for each, _ in agreeing]
        return tuple(probabilities)

    def behind(self, source: str, estimate: EstimateAcceptance) -> DraftChain:
        """What others propose behind the draft of `source`, as far as they agree with all of it."""
        branches = self._main_branches()
        own = [draft.token for draft in branches.pop(source, ())]
        others = [
            name
            for name, draft in branches.items()
            if len(draft) > len(own) and [each.token for each in draft[: len(own)]] == own
        ]
        if not others:
            return EMPTY_CHAIN
        return DraftChain(*zip(*_Merge(branches, estimate, 0.0).after(others, len(own), 1.0), strict=True))

    def check_integrity(self) -> None:
        """Raise AssertionError unless all drafts are alive."""
        assert all(tree.alive for tree in self._trees.values()), "a dead draft is kept"

    def _main_branches(self) -> dict[str, Sequence[DraftToken]]:
        return {source: tree.main_branch() for source, tree in self._trees.items()}

    def _catch_up(self, source: str, tree: DraftTree) -> list[TokenOutcome]:
        """Move a new draft's cursor past the committed tokens, with the outcomes that are not known yet.

        Looks at no more tokens than the draft has, however old it is.
        """
        committed, outcomes = self._committed, []
        for position in range(tree.base, len(committed)):
            proposed = tree.next()
            if proposed is None:  # it has ended, or conflicts with what was committed
                break
            if position >= self._scored.get(source, 0):
                right = proposed.token == committed[position]
                place = position - tree.base
                outcomes.append(TokenOutcome(source, proposed.confidence, "single", place, position, right))
                self._scored[source] = position + 1
            tree.step(committed[position])
        return outcomes


_Chosen = tuple[int, str, float]
"""A token, its source, and the probability that it is accepted."""


class _Merge:
    """Where sources agree their drafts are one; where not, the branch with more expected tokens wins."""

    def __init__(
        self, drafts: Mapping[str, Sequence[DraftToken]], estimate: EstimateAcceptance, min_survival: float
    ) -> None:
        self._drafts = drafts
        self._estimate = estimate
        self._min_survival = min_survival

    def after(self, sources: list[str], start: int, survival: float) -> list[_Chosen]:
        """The best chain from place `start` on, among those of `sources`, which agree before it."""
        if len(sources) == 1:
            return self._of_one(sources[0], start, survival)
        chosen: list[_Chosen] = []
        for place in range(start, MAX_DEPTH):
            here = [
                (source, self._drafts[source][place])
                for source in sources
                if place < len(self._drafts[source])
            ]
            if not here or survival < self._min_survival:
                break
            tokens = [draft.token for _, draft in here]
            if tokens.count(tokens[0]) < len(tokens):
                return chosen + self._best_fork(here, place, survival)
            if len(here) == 1:
                return chosen + self._of_one(here[0][0], place, survival)
            best = self._likeliest(here, "agreed")
            chosen.append(best)
            survival *= best[2]
            sources = [source for source, _ in here]
        return chosen

    def _of_one(self, source: str, start: int, survival: float) -> list[_Chosen]:
        """The rest of one source's draft, where no other source proposes anything."""
        chosen: list[_Chosen] = []
        for token, confidence in self._drafts[source][start:MAX_DEPTH]:
            if survival < self._min_survival:
                break
            probability = self._estimate(source, confidence, "single")
            chosen.append((token, source, probability))
            survival *= probability
        return chosen

    def _best_fork(self, here: list[tuple[str, DraftToken]], place: int, survival: float) -> list[_Chosen]:
        """The one of the conflicting tokens at `place` with the most expected tokens from there on."""
        tokens = [draft.token for _, draft in here]
        forks = []
        for token in dict.fromkeys(tokens):
            agreeing = [(source, draft) for source, draft in here if draft.token == token]
            first = self._likeliest(agreeing, _agreement_on(token, tokens))
            rest = self.after([source for source, _ in agreeing], place + 1, survival * first[2])
            forks.append([first, *rest])
        return max(forks, key=_expected_tokens)

    def _likeliest(self, here: Sequence[tuple[str, DraftToken]], agreement: Agreement) -> _Chosen:
        """The token that all in `here` propose, with the source that predicts such tokens best."""
        probability, source = max(
            (self._estimate(source, draft[1], agreement), source) for source, draft in here
        )
        return here[0][1].token, source, probability


def _agreement_on(token: int, proposed: Sequence[int]) -> Agreement:
    """`proposed`: one token of each source at this place, `token` among them."""
    if len(proposed) == 1:
        return "single"
    return "agreed" if proposed.count(token) > 1 else "conflicting"


def _expected_tokens(chain: Sequence[_Chosen]) -> float:
    """How many of its tokens will be accepted on average."""
    return float(sum(accumulate((probability for _, _, probability in chain), mul)))


def _outdated(tree: DraftTree, current: DraftTree | None) -> bool:
    return current is not None and (tree.base, len(tree)) < (current.base, len(current))
