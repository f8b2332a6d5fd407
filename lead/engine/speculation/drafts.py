"""All drafts for one sequence: a tree of tokens for each source, and the source's progress.

A draft stays while it agrees with the committed tokens: after a step that accepted its first tokens the rest
is still a draft; after a rejection a side branch may be. Every source is scored by the committed tokens,
whether its draft was verified or not. `forecast` estimates the value of drafts.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import accumulate, repeat
from operator import mul
from typing import Literal, NamedTuple

from lead.engine.drafters.draft_source import InlineDraft, LookupDrafter
from lead.engine.drafters.followers import Followers

_MAX_COMMITS = 64
"""A source that answers commits older than this is not worth waiting for."""

Agreement = Literal["single", "agreed", "conflicting"]
"""For a proposed token: no other source proposed one; one proposed the same; all others proposed another."""

Probabilities = Sequence[float]
"""For each token of a draft, the probability that it and all before it are accepted."""


class DraftToken(NamedTuple):
    """A proposed token. `confidence`: the probability that it is right if those before it are; None: unknown.

    In a draft the confidence is the source's own; in the choice for a step it is the forecast's.
    """

    token: int
    source: str
    confidence: float | None


DraftChain = Sequence[DraftToken]
"""Tokens of which each follows the one before it; the first follows the committed ones."""


def survival(chain: DraftChain) -> tuple[float, ...]:
    """For each token of `chain` the probability that it and all before it are right; 0 for tokens without
    confidence (guesses).
    """
    return tuple(accumulate([each.confidence or 0.0 for each in chain], mul))


Learn = Callable[[DraftToken, Agreement, int, bool], None]
"""Is told of a proposed token, whether it was right; those before it were. The third argument is its place:
0 directly followed the committed tokens when they were extended."""


class DraftTree:
    """A tree of tokens that follow the first `base` committed ones, as in `shared.protocol.Draft`.

    The cursor is at the last committed token as long as the committed tokens are a path in the tree; tokens
    that may still be accepted are below it. It starts at the root; `follow` moves it. `branch`: the tokens
    proposed from the cursor on, along the first branch at every fork.
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
        self.branch: DraftChain = self._nodes
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

    def follow(self, tokens: Sequence[int]) -> DraftChain:
        """Move the cursor along the committed `tokens`; returns the tokens that the draft had proposed in
        their place, as far as it reached.
        """
        if self._children:
            return self._follow_branches(tokens)
        branch, n_right = self.branch, 0
        for drafted, token in zip(branch, tokens, strict=False):
            if drafted.token != token:
                self.branch = []
                return branch[: n_right + 1]
            n_right += 1
        self.branch = branch[n_right:]
        return branch[:n_right]

    def _follow_branches(self, tokens: Sequence[int]) -> DraftChain:
        proposed = []
        for token in tokens:
            if not self.branch:
                break
            proposed.append(self.branch[0])
            node = next((node for node in self._following if self._nodes[node].token == token), None)
            self._following = [] if node is None else self._children[node + 1]
            self.branch = self.branch[1:] if proposed[-1].token == token else self._first_branch()
        return proposed

    def _first_branch(self) -> list[DraftToken]:
        branch, following = [], self._following
        while following:
            branch.append(self._nodes[following[0]])
            following = self._children[following[0] + 1]
        return branch


class SourceState(Enum):
    """The state of a source for a sequence, judged by its last draft."""

    SILENT = "it has sent nothing yet"
    GROWING = "its draft agrees with the text, of which it has seen all; more tokens of it may come"
    BEHIND = "its draft agrees with more text than it had seen; it may go on when it sees that"
    ANSWERING = "its draft has departed from the text; the next one is its answer to that"


@dataclass(slots=True)
class SourceProgress:
    """The progress of a source with a sequence.

    n_scored: the position of the text up to which its tokens were compared. n_right: the number of right
    tokens, in time and too late, since the last `pop_right`.

    Its last draft followed `base` tokens and reached to position `end`; it last grew at the time `grown_at`.
    `Arrivals` writes the rest, for backs only: dead_since: the number of committed tokens when that draft
    became stale; None: it is alive. unseen_since: when tokens were committed that it has not seen; None: it
    has seen all.
    """

    grown_at: float  # at first, when the sequence began
    n_scored: int = 0
    n_right: tuple[int, int] = (0, 0)
    base: int = -1
    end: int = 0
    dead_since: int | None = 0
    unseen_since: float | None = None

    @property
    def state(self) -> SourceState:
        if self.base < 0:
            return SourceState.SILENT
        if self.dead_since is not None:
            return SourceState.ANSWERING
        return SourceState.GROWING if self.unseen_since is None else SourceState.BEHIND

    @property
    def silent_since(self) -> float:
        if self.state is SourceState.ANSWERING and self.unseen_since is not None:
            return self.unseen_since
        return self.grown_at


class Drafts:
    """The drafts of one sequence, from its beginning to its end, and the times of its commits."""

    def __init__(
        self, name: str, tokens: Sequence[int], lookups: Mapping[str, LookupDrafter], now: float
    ) -> None:
        """`tokens` are the committed ones, a list that the engine extends. The sources receive it now.

        lookups: the drafters that need no model, by the names of their sources.
        """
        self.id = name
        self.tokens = tokens
        self.n_opened = len(tokens)
        self.opened_at = now
        self.lookups = lookups
        self.trees: dict[str, DraftTree] = {}
        """By source, its draft while that is alive."""
        self.by_source = defaultdict[str, SourceProgress](partial(SourceProgress, now))
        self.inline: InlineDraft | None = None  # of the drafter in the engine that takes its time
        self.stuck_at_step = -1  # the number of the step before which it gets no more inline tokens
        self._commits = deque([(len(tokens), now)], maxlen=_MAX_COMMITS)
        self._followers = Followers()
        self._unscored: list[Callable[[Learn], None]] = []

    # What is proposed

    @property
    def branches(self) -> list[DraftChain]:
        """The main branch of each source that has a draft."""
        return [tree.branch for tree in self.trees.values()]

    def branch(self, source: str) -> DraftChain:
        """The main branch of one source; empty if it has no draft."""
        return self.trees[source].branch if source in self.trees else ()

    @property
    def n_pending(self) -> int | None:
        """The number of tokens that the inline drafter has yet to decode (`InlineDraft.n_pending`)."""
        return self.inline.n_pending if self.inline else None

    def guesses(self, drafted: DraftChain, n: int, source: str) -> DraftChain:
        """At most `n` tokens that followed the last token of `drafted` earlier: cheap guesses,
        often wrong.
        """
        last = drafted[-1].token if drafted else self.tokens[-1]
        return [DraftToken(token, source, None) for token in self._followers.follow(self.tokens, last, n)]

    # What arrives

    def post(self, tree: DraftTree, received_at: float | None = None) -> bool:
        """Store a draft if it is alive; returns whether it is.

        With m = len(tokens) ≥ base it is alive iff tokens[base : m] is a path in the tree that continues
        below. It does not replace a draft of the same source that follows more committed tokens, or equally
        many and is longer: messages may overtake each other. received_at: tokens committed before then were
        drafted too late; None: no tokens were.
        """
        if tree.base > len(self.tokens):
            return False
        later = self.tokens[tree.base : tree.base + len(tree)]
        if later:
            proposed = [tree.follow(later)]
            self._unscored.append(partial(self._score, proposed, tree.base, later, received_at))
        if tree.alive and not _outdated(tree, self.trees.get(tree.source)):
            self.trees[tree.source] = tree
        return tree.alive

    def post_own(self, source: str, tokens: Sequence[int], confidences: Sequence[float]) -> None:
        """Store a draft of the engine's own source, after all committed tokens; without tokens the previous
        draft stays.
        """
        if tokens:
            self.trees[source] = DraftTree(source, len(self.tokens), tokens, None, confidences)

    def ask_lookups(self, enough: int, max_tokens: int) -> None:
        """Let lookup drafters draft up to `max_tokens` again if less than `enough` of their last draft is
        left.
        """
        for source, drafter in self.lookups.items():
            if len(self.branch(source)) < enough:
                self.post_own(source, *drafter.draft(self.tokens, max_tokens))

    @property
    def n_looked_up(self) -> int:
        """The largest number of committed tokens that a lookup's draft, still alive, has had right."""
        lasting = [self.trees[source].base for source in self.lookups if source in self.trees]
        return len(self.tokens) - min(lasting, default=len(self.tokens))

    # What is committed

    def extend(self, start: int, tokens: Sequence[int], now: float) -> None:
        """Record that `tokens` were committed from position `start` on, and sent to backs `now`.

        Stale drafts are removed.
        """
        proposed = [tree.follow(tokens) for tree in self.trees.values()]
        if proposed:
            self._unscored.append(partial(self._score, proposed, start, tokens, None))
        n_committed = start + len(tokens)
        self._commits.append((n_committed, now))
        for each in self.by_source.values():
            if each.unseen_since is None:
                each.unseen_since = now
        for source in [source for source, tree in self.trees.items() if not tree.alive]:
            del self.trees[source]
            self.by_source[source].dead_since = n_committed

    def score(self, learn: Learn) -> None:
        """Call `learn` for all drafts' tokens that can be compared since the last call.

        Each position of a source counts once. This need not be done before the next step.
        """
        for score in self._unscored:
            score(learn)
        self._unscored.clear()

    def _score(
        self,
        proposed: Sequence[DraftChain],
        start: int,
        committed: Sequence[int],
        received_at: float | None,
        learn: Learn,
    ) -> None:
        """The tokens that each tree had proposed for those `committed` from `start` on, as far as
        it reached.
        """
        for place, token in enumerate(committed):
            here = [each[place] for each in proposed if place < len(each)]
            if not here:  # all have ended, or conflict with what was committed
                break
            position, tokens = start + place, [each.token for each in here]
            for drafted in here:
                record = self.by_source[drafted.source]
                if position < record.n_scored:
                    continue
                record.n_scored = position + 1
                right = drafted.token == token
                if right:
                    n_in_time, n_late = record.n_right
                    at = None if received_at is None else self.passed(position)
                    is_late = at is not None and received_at is not None and received_at > at
                    record.n_right = (n_in_time + (not is_late), n_late + is_late)
                learn(drafted, agreement_on(drafted.token, tokens), place, right)

    def pop_right(self, *, except_of: Collection[str]) -> dict[str, tuple[int, int]]:
        """By source, the number of tokens (in time, too late) that `score` found right since the
        last call.
        """
        counted = {}
        for source, each in self.by_source.items():
            if any(each.n_right) and source not in except_of:
                counted[source] = each.n_right
                each.n_right = (0, 0)
        return counted

    @property
    def last_commit(self) -> float:
        """The time when tokens were last committed."""
        return self._commits[-1][1]

    def reached(self, n_committed: int) -> float | None:
        """The time when the sequence had exactly `n_committed` tokens; None if it never had, or too
        long ago.
        """
        return next((time for n, time in reversed(self._commits) if n == n_committed), None)

    def passed(self, n_committed: int) -> float | None:
        """The time when the sequence first had more than `n_committed` tokens, as far as is remembered; None
        if it has no more.
        """
        return next((time for n, time in self._commits if n > n_committed), None)

    # Who comes and goes

    def disconnect(self, sources: Iterable[str]) -> None:
        """Handle backs that have left: their drafts may still be right, and their names may be used again."""
        for source in sources:
            if record := self.by_source.get(source):
                self.by_source[source] = SourceProgress(self.opened_at, record.n_scored, record.n_right)

    def close(self) -> None:
        """Close the lookup drafters: the sequence has ended with its `tokens`."""
        for drafter in self.lookups.values():
            drafter.close(self.tokens)

    def check_integrity(self) -> None:
        """Raise AssertionError unless all stored drafts are alive."""
        assert all(self.branches), "a dead draft is kept"


def agreement_on(token: int, proposed: Sequence[int]) -> Agreement:
    """The agreement on `token` among the tokens that the sources `proposed` for this place, `token`
    included.
    """
    if len(proposed) == 1:
        return "single"
    return "agreed" if proposed.count(token) > 1 else "conflicting"


def _outdated(tree: DraftTree, current: DraftTree | None) -> bool:
    return current is not None and (tree.base, len(tree)) < (current.base, len(current))
