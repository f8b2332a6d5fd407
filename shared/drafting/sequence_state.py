"""The state of a sequence: its committed tokens, and the branches of its draft.

A draft is a tree: a main branch, and side branches that leave it before one of its tokens. A side branch
begins with a runner-up of the draft model: because of the shared noise, runners-up are the tokens that the
lead most likely recovers. The probability of a branch is the product of the confidences along it.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import accumulate
from operator import itemgetter, mul
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shared.drafting.drafter_options import DrafterOptions
from shared.llama.span import Span
from shared.protocol import MAX_DRAFT_TOKENS, BranchPart, Draft
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import RankedToken, Sampler
from shared.slot_cache import SlotCache, common_prefix_length

_OTHERS_WEIGHT = 0.1
"""The weight of a side branch that is assigned to another back. In simulation with four backs, .1 and .2 are
equally good. If backs left such branches out, the result would be worse than if all backs drafted the same
branches, because backs do not get equally far.
"""
_CONFIDENCE_DIGITS = 4
SEND_SECONDS, SOON_SECONDS = 0.005, 0.001
"""The seconds between two messages: the first value while the lead has enough to verify, the second while it
may wait for more tokens. A message costs the lead's front process about 0.2 ms of CPU time, which the lead's
model could use. In the shorter time, a fast draft model makes several tokens, which go into one message.
"""


@dataclass(slots=True, eq=False, repr=False)
class DraftBranch:
    """A branch: draft tokens at positions start, start + 1, … `cache` and `sampler` cover these tokens and
    all tokens before them.

    ranked: for each position the draft token and its runners-up, likeliest first.

    A side branch that has not begun has one token, and no cache or sampler. In a branch that has begun, the
    last token is sampled but not decoded, and `cache` holds the decoded tokens. Exception: while a grammar's
    choice is awaited, all tokens are decoded, and `unranked` has the logits after them.
    """

    start: int
    ranked: list[Sequence[RankedToken]] = field(default_factory=list)
    cache: SlotCache = field(init=False)
    sampler: Sampler = field(init=False)
    unranked: NDArray[np.float32] | None = None

    def begin(self, cache: SlotCache, sampler: Sampler) -> Self:
        """Give the branch a slot and a sampler, so that it can be decoded; return the branch."""
        self.cache, self.sampler = cache, sampler
        return self

    @property
    def key(self) -> tuple[int, int]:
        """The start and first token of a side branch, which identify it."""
        return self.start, self.ranked[0][0].token

    @property
    def end(self) -> int:
        return self.start + len(self.ranked)

    @property
    def drafted(self) -> list[RankedToken]:
        return [choices[0] for choices in self.ranked]

    @property
    def tokens(self) -> list[int]:
        return [choices[0].token for choices in self.ranked]

    @property
    def confidence(self) -> float:
        """The product of the tokens' confidences: the probability that all are right if their prefix is."""
        return math.prod(choices[0].confidence for choices in self.ranked)

    def n_matching(self, tokens: Sequence[int]) -> int:
        """Return the length of the common prefix of this branch and `tokens`."""
        n = 0
        for choices, token in zip(self.ranked, tokens, strict=False):
            if choices[0].token != token:
                break
            n += 1
        return n

    def drop_before(self, start: int) -> None:
        """Remove the tokens before position `start`, which are committed now."""
        del self.ranked[: start - self.start]
        self.start = start

    def append(self, choices: Sequence[RankedToken]) -> None:
        """Append the first of `choices`; the others are its runners-up, likeliest first."""
        self.unranked = None
        self.ranked.append(choices)
        self.sampler.accept(choices[0].token)


@dataclass(slots=True)
class SequenceState:
    """The state of one sequence. Each branch's cache holds a window of its text.

        committed + main branch      [0 ......................... main.end)
        the model's window           [window_start ...... up to n_window tokens)
        in the main branch's cache   [window_start .. window_start + len(cache))
        main branch                  [len(committed) .... main.end)
        a side branch                     [start .... end)    instead of the main branch's tokens there

    part: the side branches that the lead assigns to this back; None: all. options: as tuned by the lead.
    group: the same for all sequences of a lead. release: takes back the slots of dropped branches. branches:
    side branches by key. grown_from: the length of the main branch when the draft began to grow after it was
    last sent; None: it has not grown. sent_at: the time of the last `take_draft`, in seconds. corrected: the
    times at which the message that rejected the last draft arrived and was handled; None once the next draft
    is sent.
    """

    id: str
    sampling: SamplingParameters
    committed: list[int]
    main: DraftBranch
    options: DrafterOptions
    end_tokens: Collection[int]
    release: Callable[[SlotCache], None]
    group: int = 0
    part: BranchPart | None = None
    grown_from: int | None = None
    sent_at: float = -math.inf
    corrected: tuple[float, float] | None = None
    branches: dict[tuple[int, int], DraftBranch] = field(default_factory=dict)
    window_start: int = 0
    can_branch: bool = True  # False after a branch has failed
    previous_cache: list[int] = field(default_factory=list)
    # what the slot held before this sequence, until the next decode

    @property
    def all_branches(self) -> Sequence[DraftBranch]:
        """The main branch, then the side branches."""
        return (self.main, *self.branches.values())

    @property
    def unranked(self) -> Iterator[DraftBranch]:
        """The branches that wait for their grammar."""
        return (branch for branch in self.all_branches if branch.unranked is not None)

    @property
    def is_complete(self) -> bool:
        """True if the main branch has all the tokens that it may get before more tokens are committed."""
        main = self.main
        if len(main.ranked) >= self.options.n_ahead:
            return True
        return bool(main.ranked) and (
            main.ranked[-1][0].token in self.end_tokens or main.confidence < self.options.min_confidence
        )

    @property
    def can_extend(self) -> bool:
        """True if the main branch may get another token."""
        return self.main.unranked is None and self.main.end > 0 and not self.is_complete

    def append(self, branch: DraftBranch, choices: Sequence[RankedToken]) -> None:
        if self.grown_from is None:
            self.grown_from = len(self.main.ranked)
        branch.append(choices)

    def n_pending(self, branch: DraftBranch) -> int:
        """Return the number of tokens to decode before the branch's next token can be sampled."""
        return branch.end - self.window_start - len(branch.cache)

    @property
    def n_pending_after_move(self) -> int:
        """`n_pending` of the main branch as it will be after `move_window`."""
        if self._fits_window:
            return self.n_pending(self.main)
        return min(self.main.end, self._n_kept)

    def pending(self, branch: DraftBranch, n: int) -> list[int]:
        """Return the next `n` tokens to decode.

        The cache of a side branch holds all tokens before the branch.
        """
        start = self.window_start + len(branch.cache)
        if start >= branch.start:
            return branch.tokens[start - branch.start :][:n]
        return [*self.committed[start : start + n], *branch.tokens][:n]

    def can_follow(self, branch: DraftBranch, tokens: Sequence[int]) -> bool:
        """Return whether a branch agrees with these tokens, which follow the committed tokens."""
        drafted = [*self.main.tokens[: branch.start - self.main.start], *branch.tokens]
        return all(mine == theirs for mine, theirs in zip(drafted, tokens, strict=False))

    def commit(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Add committed `tokens`, and keep the part of the draft that agrees.

        If the tokens follow a side branch, it becomes the main branch, with all its decoded tokens. Returns
        the number of right tokens of the main branch, and the number (0 or 1) of its wrong tokens.
        """
        n_right = n_matching = self.main.n_matching(tokens)
        n_wrong = int(n_right < min(len(tokens), len(self.main.ranked)))
        fork = len(self.committed) + n_right
        if n_wrong and (branch := self.branches.pop((fork, tokens[n_right]), None)):
            n_matching += branch.n_matching(tokens[n_right:])
            self.release(self.main.cache)
            self.main = branch
            self.drop_branches()
        n_valid = len(self.committed) + n_matching
        self.committed += tokens
        if n_matching == len(tokens):
            self.main.drop_before(len(self.committed))
            # Branches that start before the end of the committed tokens cannot be taken any more.
            self.drop_branches(before=len(self.committed))
        else:
            self.drop_branches()
            self.main.ranked = []
            self.main.unranked = None
            self.main.start = len(self.committed)
            self.main.cache.keep(max(0, n_valid - self.window_start))
            self.main.sampler.rewind(self.committed)
        return n_right, n_wrong

    def restore_cache(self) -> None:
        """Reuse more of the slot's previous contents, because a long prompt arrives in several messages."""
        n = min(common_prefix_length(self.previous_cache, self.committed), len(self.committed) - 1)
        n = self.main.cache.reachable(n, self.previous_cache)
        if n > len(self.main.cache):
            self.main.cache.restore(self.previous_cache[:n])

    def move_window(self) -> None:
        """Move a full window: its second half is decoded again, from position 0.

        The window moves back if, after a rejected draft, the text ends before the window begins. Any window
        is correct, because the lead verifies.
        """
        if not self._fits_window:
            self.window_start = max(0, self.main.end - self._n_kept)
            self.main.cache.keep(0)
            self.drop_branches()

    @property
    def _fits_window(self) -> bool:
        return 0 < self.main.end - self.window_start < self.options.n_window

    @property
    def _n_kept(self) -> int:
        """The number of tokens of a full window that are also in the next window."""
        return max(1, self.options.n_window // 2)

    def drop_branches(self, before: float = math.inf) -> None:
        """Drop the side branches that start before this position."""
        for key in [key for key in self.branches if key[0] < before]:
            self.release(self.branches.pop(key).cache)

    def growing_branches(self, minimum: float) -> list[tuple[float, DraftBranch]]:
        """Return (value, branch) for side branches to continue or to begin, with values of at least
        `minimum`.

        The value is the probability that the branch's next token is committed, according to the confidences.
        It is reduced for branches that are assigned to another back.
        """
        minimum = max(minimum, self.options.min_confidence / 2)
        # reach[i]: the probability that the first i tokens of the main branch are all committed
        reach = list(accumulate((each.confidence for each in self.main.drafted), mul, initial=1.0))
        begun = ((self._value(each, reach), each) for each in self.branches.values() if self._can_grow(each))
        valued = [each for each in begun if each[0] >= minimum]
        if n_free := self.options.n_branches - len(self.branches):
            valued += nlargest(n_free, self._new_branches(reach, minimum), key=itemgetter(0))
        return valued

    def _value(self, branch: DraftBranch, reach: Sequence[float]) -> float:
        is_own = self.part is None or self.part.has(*branch.key)
        probability = reach[branch.start - self.main.start] * branch.confidence
        return probability * (1.0 if is_own else _OTHERS_WEIGHT)

    def _can_grow(self, branch: DraftBranch) -> bool:
        return (
            branch.unranked is None
            and len(branch.ranked) < self.options.n_branch_tokens
            and branch.end - self.main.start < self.options.n_ahead
            and branch.end - self.window_start <= self.options.n_window
            and branch.ranked[-1][0].token not in self.end_tokens
        )

    def _new_branches(self, reach: Sequence[float], minimum: float) -> Iterator[tuple[float, DraftBranch]]:
        """Yield each side branch that could begin now, with its value."""
        main = self.main
        # A new branch's cache is a copy of the main branch's, which is refilled when the window has moved.
        n_cached_end = self.window_start + len(main.cache)
        last = min(n_cached_end, main.start + self.options.n_ahead - 2)
        for start, choices in enumerate(main.ranked, main.start):
            prefix_probability = reach[start - main.start]
            if start > last or prefix_probability < minimum:
                return
            if start <= self.window_start or not main.cache.can_fork(start - self.window_start):
                continue
            for runner_up in choices[1:]:
                if prefix_probability * runner_up.confidence < minimum:
                    break
                branch = DraftBranch(start, [[runner_up]])
                if runner_up.token in self.end_tokens or branch.key in self.branches:
                    continue
                if (value := self._value(branch, reach)) >= minimum:
                    yield value, branch

    def take_draft(self, now: float) -> Draft | None:
        """Return the draft to send at the time `now`; None if it has not grown since it was last sent."""
        has_grown, self.grown_from, self.sent_at = self.grown_from is not None, None, now
        draft = self.draft() if has_grown else None
        if draft is None or self.corrected is None:
            return draft
        (arrived, handled), self.corrected = self.corrected, None
        return draft.model_copy(
            update={"waited_ms": _ms(handled - arrived), "drafted_ms": _ms(now - handled)}
        )

    def is_due(self, now: float) -> bool:
        """Return whether the draft has grown and it is time to send it."""
        return self.grown_from is not None and now - self.sent_at >= self._send_delay(self.grown_from)

    def _send_delay(self, n_before: int) -> float:
        """Return the seconds between two messages; the last message had `n_before` tokens of the main
        branch.
        """
        n, n_per_step = len(self.main.ranked), self.options.n_per_step
        if n == n_before:  # only side branches have grown
            return SEND_SECONDS
        if self.is_complete or n_before < n_per_step <= n:  # all that the lead verifies in one step
            return 0.0
        return SOON_SECONDS if n < n_per_step else SEND_SECONDS

    def draft(self) -> Draft | None:
        """Return the whole draft, main branch first; None if it has no tokens.

        Side branches of a single token are left out: they would help only if the target has just chosen this
        token.
        """
        drafted = self.main.drafted
        if not drafted:
            return None
        parents = list(range(-1, len(drafted) - 1))
        branches = self.branches.values()
        for branch in sorted(branches, key=lambda each: (each.start, -each.ranked[0][0].confidence)):
            part = branch.drafted[: MAX_DRAFT_TOKENS - len(drafted)]
            if len(part) > 1:
                parents += [
                    branch.start - self.main.start - 1,
                    *range(len(drafted), len(drafted) + len(part) - 1),
                ]
                drafted += part
        return Draft(
            sequence=self.id,
            base=len(self.committed),
            tokens=[each.token for each in drafted],
            parents=parents if len(drafted) > len(self.main.ranked) else None,
            confidences=[round(each.confidence, _CONFIDENCE_DIGITS) for each in drafted],
        )

    def check_integrity(self) -> None:
        """Raise AssertionError unless all branches continue the committed tokens and hold no others."""
        base = len(self.committed)
        assert self.main.start == base, f"main branch starts at {self.main.start}, committed ends at {base}"
        for key, branch in self.branches.items():
            assert key == branch.key
        for branch in self.all_branches:
            assert base <= branch.start <= self.main.end
            text = [*self.committed, *self.main.tokens[: branch.start - base], *branch.tokens]
            end = self.window_start + len(branch.cache)
            assert branch.cache.tokens == text[self.window_start : end], (
                f"slot {branch.cache.index} holds other tokens"
            )
            assert branch is self.main or self.n_pending(branch) == (1 if branch.unranked is None else 0)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


Work = Sequence[tuple[SequenceState, DraftBranch]]
"""The branches to decode, the most valuable first."""


def spans_of(work: Work, n_max: int, n_chunk: int) -> list[Span]:
    """Return a span for each branch: one token if it is drafting; prompts share the rest of `n_max` tokens.

    n_chunk: the maximum number of prompt tokens while a branch is drafting.
    """
    n_spare = max(0, n_max - len(work))
    if any(state.n_pending(branch) == 1 for state, branch in work):
        n_spare = min(n_spare, n_chunk)
    spans = []
    for state, branch in work:
        n_pending = state.n_pending(branch)
        n = 1 + min(n_pending - 1, n_spare)
        n_spare -= n - 1
        n_logits = 1 if n == n_pending else 0
        spans.append(Span(branch.cache.index, len(branch.cache), state.pending(branch, n), n_logits))
    return spans
