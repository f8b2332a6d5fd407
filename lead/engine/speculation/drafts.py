"""The drafts for one sequence: a tree of tokens from each source, and the progress of the source.

A draft is kept while it agrees with the committed tokens. After a step that accepted its first tokens, the
other tokens are still a draft. After a rejection, a side branch may still agree. Every source is scored
against the committed tokens, whether its draft was verified or not. `forecast` estimates the value of drafts.
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
"""The number of commits whose times are kept; a source that answers an older one is not worth a wait."""

Agreement = Literal["single", "agreed", "conflicting"]
"""The tokens of other sources at a position: none, the same token, or only different tokens."""

Probabilities = Sequence[float]
"""The probability, for each token of a draft, that it and all tokens before it are accepted."""


class DraftToken(NamedTuple):
    """A proposed token. confidence: the probability that it is right if the tokens before it are; None:
    unknown.

    In a draft it is the source's confidence; in a step's `Choice` it is the forecast's.
    """

    token: int
    source: str
    confidence: float | None


DraftChain = Sequence[DraftToken]
"""Draft tokens, each following the one before it; the first follows the committed tokens."""


def survival(chain: DraftChain) -> tuple[float, ...]:
    """Return, for each token of `chain`, the probability that it and all tokens before it are right.

    Tokens without confidence (guesses) count as 0.
    """
    return tuple(accumulate([each.confidence or 0.0 for each in chain], mul))


Learn = Callable[[DraftToken, Agreement, int, bool], None]
"""A function, called as learn(token, agreement, place, right) for each scored token; all tokens before it
were right. place: the token's index among the committed tokens with which the draft was compared."""


class DraftTree:
    """A tree of draft tokens that follow the first `base` committed tokens, as in `shared.protocol.Draft`.

    The cursor is at the last committed token, as long as the committed tokens form a path in the tree. Tokens
    below the cursor may still be accepted. The cursor starts at the root, and `follow` moves it. branch: the
    main branch from the cursor on, which takes the first child at every fork.
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
        """Return the number of all its tokens, including those above the cursor."""
        return len(self._nodes)

    @property
    def alive(self) -> bool:
        """True if any of its tokens may still be accepted."""
        return bool(self.branch)

    def follow(self, tokens: Sequence[int]) -> DraftChain:
        """Move the cursor along the committed `tokens`; return the draft tokens at their positions.

        Ends at the first position where the draft had another token, or none.
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
    GROWING = "it has seen the whole text, its draft agrees with the text, and the draft may still grow"
    BEHIND = "it has not seen the newest tokens; its draft agrees with the text, and may grow after it has"
    ANSWERING = "its draft differs from the text; its next draft will follow the new text"


@dataclass(slots=True)
class SourceProgress:
    """The progress of a source with a sequence.

    n_scored: the position of the text up to which its tokens were scored. n_right: the numbers of right
    tokens, in time and too late, since the last `pop_right`.

    Its last draft followed `base` tokens, ended at position `end`, and last grew at the time `grown_at`.
    `Arrivals` sets the other fields, only for backs. dead_since: the number of committed tokens when its last
    draft became stale; None: that draft is alive. unseen_since: the time when tokens were first committed
    that the back had not seen; None: it has seen all.
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
    """The drafts of one sequence, and the times of its commits."""

    def __init__(
        self, name: str, tokens: Sequence[int], lookups: Mapping[str, LookupDrafter], now: float
    ) -> None:
        """`tokens` is the list of committed tokens, which the engine extends. now: when sources get the
        sequence.

        lookups: the lookup drafters, by source.
        """
        self.id = name
        self.tokens = tokens
        self.n_opened = len(tokens)
        self.opened_at = now
        self.lookups = lookups
        self.trees: dict[str, DraftTree] = {}
        """The draft that is alive, by source."""
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
        """Return the main branch of one source; empty if it has no draft."""
        return self.trees[source].branch if source in self.trees else ()

    @property
    def n_pending(self) -> int | None:
        """The number of tokens that the inline drafter must decode before its draft can grow
        (`InlineDraft`).
        """
        return self.inline.n_pending if self.inline else None

    def guesses(self, drafted: DraftChain, n: int, source: str) -> DraftChain:
        """Return at most `n` guessed tokens after `drafted`: tokens that followed its last token earlier."""
        last = drafted[-1].token if drafted else self.tokens[-1]
        return [DraftToken(token, source, None) for token in self._followers.follow(self.tokens, last, n)]

    # What arrives

    def post(self, tree: DraftTree, received_at: float | None = None) -> bool:
        """Store a draft if it is alive; return whether it is alive.

        With m = len(tokens) ≥ base, a draft is alive if its tree has the path tokens[base : m], and further
        tokens after it. Messages may overtake each other. So the stored draft of the source stays if its base
        is larger than the new draft's, or if the bases are equal and it has more tokens.

        received_at: tokens for positions committed before this time came too late; None: no token did.
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
        """Store a draft of a source in the engine, which follows all committed tokens.

        Without tokens, the previous draft stays.
        """
        if tokens:
            self.trees[source] = DraftTree(source, len(self.tokens), tokens, None, confidences)

    def ask_lookups(self, enough: int, max_tokens: int) -> None:
        """Ask each lookup drafter whose draft has fewer than `enough` tokens left for up to `max_tokens`."""
        for source, drafter in self.lookups.items():
            if len(self.branch(source)) < enough:
                self.post_own(source, *drafter.draft(self.tokens, max_tokens))

    @property
    def n_looked_up(self) -> int:
        """The number of tokens that the oldest living draft of a lookup had right so far."""
        lasting = [self.trees[source].base for source in self.lookups if source in self.trees]
        return len(self.tokens) - min(lasting, default=len(self.tokens))

    # What is committed

    def extend(self, start: int, tokens: Sequence[int], now: float) -> None:
        """Record that `tokens` were committed from position `start` on, and sent to backs at the time `now`.

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
        """Call `learn` for all draft tokens that have become comparable with committed tokens since the last
        call.

        Each position counts once per source. The call can be made after the next step.
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
        """Score the tokens that each tree `proposed` for the positions of `committed` from `start` on."""
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
        """Return, by source, the numbers of tokens (in time, too late) that were right since the
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
        """Return the time when exactly `n_committed` tokens were committed; None if never, or too
        long ago.
        """
        return next((time for n, time in reversed(self._commits) if n == n_committed), None)

    def passed(self, n_committed: int) -> float | None:
        """Return the time when more than `n_committed` tokens were first committed; None if there are no more
        tokens.

        Earlier times may be forgotten.
        """
        return next((time for n, time in self._commits if n > n_committed), None)

    # Who comes and goes

    def disconnect(self, sources: Iterable[str]) -> None:
        """Forget the progress of backs that have left, as another back may get the same name.

        Their drafts stay.
        """
        for source in sources:
            if record := self.by_source.get(source):
                self.by_source[source] = SourceProgress(self.opened_at, record.n_scored, record.n_right)

    def close(self) -> None:
        """Close the lookup drafters, when the sequence has ended."""
        for drafter in self.lookups.values():
            drafter.close(self.tokens)

    def check_integrity(self) -> None:
        """Raise AssertionError unless all stored drafts are alive."""
        assert all(self.branches), "a dead draft is kept"


def agreement_on(token: int, proposed: Sequence[int]) -> Agreement:
    """Return the agreement on `token` among the tokens `proposed` for one position, `token` included."""
    if len(proposed) == 1:
        return "single"
    return "agreed" if proposed.count(token) > 1 else "conflicting"


def _outdated(tree: DraftTree, current: DraftTree | None) -> bool:
    return current is not None and (tree.base, len(tree)) < (current.base, len(current))
