"""The drafts of a sequence, one tree per source, and the best chain among them.

A draft stays while it agrees with the committed tokens: after a step that accepted its first tokens the rest
is still a draft; after a rejection a side branch may be. Every source is scored by what is committed, whether
its draft was verified or not. Knows nothing of models, time or networks.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate, repeat
from operator import mul
from typing import Literal, NamedTuple

MAX_DEPTH = 32
"""No step verifies more draft tokens of a sequence."""

Agreement = Literal["single", "agreed", "conflicting"]
"""For a proposed token: no other source proposed one; one proposed the same; all others proposed another."""

EstimateAcceptance = Callable[[str, float | None, Agreement], float]
"""The probability that a token of (source, confidence, agreement) is accepted if those before it are."""

Probabilities = Sequence[float]
"""For each token of a draft, the probability that it and all before it are accepted."""


class DraftToken(NamedTuple):
    """A proposed token. `confidence` is its source's own; None if the source gives none."""

    token: int
    source: str
    confidence: float | None


Branch = Sequence[DraftToken]
"""What one source proposes to follow the committed tokens."""


class DraftChain(NamedTuple):
    """Tokens to follow the committed ones, and the source of each."""

    tokens: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    probabilities: Probabilities = ()

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
    still be accepted is below it. It starts at the root; `step` moves it. `branch`: what it proposes from the
    cursor on, the first branch at every fork.
    """

    __slots__ = ("_children", "_following", "_nodes", "base", "branch", "source")

    def __init__(
        self,
        source: str,
        base: int,
        tokens: Sequence[int],
        parents: Sequence[int] | None = None,
        confidences: Sequence[float] | None = None,
    ) -> None:
        self.source = source
        self.base = base
        self._nodes = list(map(DraftToken, tokens, repeat(source), confidences or repeat(None)))
        self._children: list[list[int]] = []  # of node i at i + 1; none for a chain
        self._following: list[int] = []  # the nodes directly below the cursor, unless it is a chain
        self.branch: Branch = self._nodes
        if parents is not None:
            self._children = [[] for _ in range(len(tokens) + 1)]
            for node, parent in enumerate(parents):
                self._children[parent + 1].append(node)
            self._following = self._children[0]
            self.branch = self._first_branch()

    def __len__(self) -> int:
        """All its tokens, including those above the cursor."""
        return len(self._nodes)

    @property
    def alive(self) -> bool:
        """Whether any of its tokens may still be accepted."""
        return bool(self.branch)

    def step(self, token: int) -> None:
        """`token` was committed."""
        is_first = bool(self.branch) and self.branch[0].token == token
        self.branch = self.branch[1:] if is_first else []
        if self._children:
            node = next((node for node in self._following if self._nodes[node].token == token), None)
            self._following = [] if node is None else self._children[node + 1]
            if not is_first:
                self.branch = self._first_branch()

    def _first_branch(self) -> list[DraftToken]:
        branch, following = [], self._following
        while following:
            branch.append(self._nodes[following[0]])
            following = self._children[following[0] + 1]
        return branch


class Drafts:
    """The current drafts of one sequence. `committed` is always the list of its committed tokens."""

    __slots__ = ("_committed", "_scored", "_trees")

    def __init__(self, committed: Sequence[int]) -> None:
        self._committed = committed
        self._trees: dict[str, DraftTree] = {}
        self._scored: dict[str, int] = {}  # outcomes of a source are known up to this position

    def post(self, tree: DraftTree) -> tuple[bool, list[TokenOutcome]]:
        """Store a draft if it is alive; returns whether it is, and the outcomes of tokens that are settled.

        With m = len(committed) ≥ base it is alive iff committed[base : m] is a path in the tree that goes on
        below. It does not replace a draft of its source that knew more committed tokens, or as many and is
        longer: messages may overtake each other.
        """
        if tree.base > len(self._committed):
            return False, []
        outcomes: list[TokenOutcome] = []
        for position in range(tree.base, len(self._committed)):
            if not tree.alive:  # it has ended, or conflicts with what was committed
                break
            place = position - tree.base
            outcomes += self._settle([tree], position, place, self._committed[position])
        if tree.alive and not _outdated(tree, self._trees.get(tree.source)):
            self._trees[tree.source] = tree
        return tree.alive, outcomes

    def extend(self, start: int, tokens: Sequence[int]) -> list[TokenOutcome]:
        """committed[start : start + len(tokens)] = tokens. Drafts that conflict with them are removed."""
        outcomes: list[TokenOutcome] = []
        for place, token in enumerate(tokens):
            outcomes += self._settle(self._trees.values(), start + place, place, token)
        self._trees = {source: tree for source, tree in self._trees.items() if tree.alive}
        return outcomes

    @property
    def sources(self) -> list[str]:
        """Those that have a draft."""
        return list(self._trees)

    def branch(self, source: str) -> Branch:
        """What one source proposes, without side branches; empty if it has no draft."""
        tree = self._trees.get(source)
        return tree.branch if tree else []

    def best(self, estimate: EstimateAcceptance, min_probability: float = 0.0) -> DraftChain:
        """The chain with the most expected accepted tokens; its parts may come from different sources.

        It ends where the probability that all of it is accepted falls below `min_probability`, and has no
        more than MAX_DEPTH tokens.
        """
        if not self._trees:
            return EMPTY_CHAIN
        branches = [tree.branch for tree in self._trees.values()]
        chosen = _Merge(estimate, min_probability).after(branches, 0, 1.0)
        if not chosen:
            return EMPTY_CHAIN
        tokens, sources, probabilities = zip(*chosen, strict=True)
        return DraftChain(tokens, sources, tuple(accumulate(probabilities, mul)))

    def outlook(
        self, source: str, estimate: EstimateAcceptance
    ) -> tuple[list[float], list[tuple[str, float]]]:
        """How likely the tokens of `source` are, and (source, probability) of those that others propose next.

        Each if all before it are accepted. Others count as long as they agree with all tokens before it: they
        agree with this one, too, or conflict.
        """
        own, probabilities = self.branch(source), list[float]()
        agreeing = [tree.branch for tree in self._trees.values()]
        for place, drafted in enumerate(own):
            if len(agreeing) == 1:  # no other source is left
                alone = [estimate(source, each.confidence, "single") for each in own[place:]]
                return probabilities + alone, []
            agreeing = [each for each in agreeing if place < len(each)]
            agreement = _agreement_on(drafted.token, [each[place].token for each in agreeing])
            agreeing = [each for each in agreeing if each[place].token == drafted.token]
            here = [each[place] for each in agreeing]
            probabilities.append(max(estimate(each.source, each.confidence, agreement) for each in here))
        others = [each for each in agreeing if len(each) > len(own)]
        if not others:
            return probabilities, []
        following = _Merge(estimate, 0.0).after(others, len(own), 1.0)
        return probabilities, [(each, probability) for _, each, probability in following]

    def check_integrity(self) -> None:
        """Raise AssertionError unless all drafts are alive."""
        assert all(tree.alive for tree in self._trees.values()), "a dead draft is kept"

    def _settle(
        self, trees: Collection[DraftTree], position: int, place: int, token: int
    ) -> list[TokenOutcome]:
        """`token` was committed at `position`: the outcomes that are not known yet. Moves all cursors."""
        here = [tree.branch[0] for tree in trees if tree.branch]
        tokens = [each.token for each in here]
        outcomes: list[TokenOutcome] = []
        for drafted, source, confidence in here:
            if position >= self._scored.get(source, 0):
                agreement, right = _agreement_on(drafted, tokens), drafted == token
                outcomes.append(TokenOutcome(source, confidence, agreement, place, position, right))
                self._scored[source] = position + 1
        for tree in trees:
            tree.step(token)
        return outcomes


_Chosen = tuple[int, str, float]
"""A token, its source, and the probability that it is accepted if those before it are."""


class _Merge:
    """Where sources agree their drafts are one; where not, the branch with more expected tokens wins."""

    def __init__(self, estimate: EstimateAcceptance, min_probability: float) -> None:
        self._estimate = estimate
        self._min_probability = min_probability

    def after(self, branches: Sequence[Branch], start: int, reached: float) -> list[_Chosen]:
        """The best chain from place `start` on, among `branches` that agree before it.

        All before it is accepted with the probability `reached`.
        """
        if len(branches) == 1:
            return self._of_one(branches[0], start, reached)
        chosen: list[_Chosen] = []
        for place in range(start, MAX_DEPTH):
            branches = [each for each in branches if place < len(each)]
            if not branches or reached < self._min_probability:
                break
            here = [each[place] for each in branches]
            tokens = [each.token for each in here]
            if tokens.count(tokens[0]) < len(tokens):
                return chosen + self._best_fork(branches, place, reached)
            if len(branches) == 1:
                return chosen + self._of_one(branches[0], place, reached)
            best = self._likeliest(here, "agreed")
            chosen.append(best)
            reached *= best[2]
        return chosen

    def _of_one(self, branch: Branch, start: int, reached: float) -> list[_Chosen]:
        """The rest of one source's draft, where no other source proposes anything."""
        chosen: list[_Chosen] = []
        for token, source, confidence in branch[start:MAX_DEPTH]:
            if reached < self._min_probability:
                break
            probability = self._estimate(source, confidence, "single")
            chosen.append((token, source, probability))
            reached *= probability
        return chosen

    def _best_fork(self, branches: Sequence[Branch], place: int, reached: float) -> list[_Chosen]:
        """The one of the conflicting tokens at `place` with the most expected tokens from there on."""
        tokens = [each[place].token for each in branches]
        forks = []
        for token in dict.fromkeys(tokens):
            agreeing = [each for each in branches if each[place].token == token]
            first = self._likeliest([each[place] for each in agreeing], _agreement_on(token, tokens))
            forks.append([first, *self.after(agreeing, place + 1, reached * first[2])])
        return max(forks, key=_expected_tokens)

    def _likeliest(self, here: Sequence[DraftToken], agreement: Agreement) -> _Chosen:
        """The token that all in `here` propose, with the source that predicts such tokens best."""
        probability, source = max(
            (self._estimate(source, confidence, agreement), source) for _, source, confidence in here
        )
        return here[0].token, source, probability


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
