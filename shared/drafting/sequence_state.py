"""The state of a sequence: its committed tokens, the paths of its draft, and what of that is unsent.

A draft is a tree: a main path, and side branches that leave it before one of its tokens.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shared.drafting.drafter_options import DrafterOptions
from shared.llama.span import Span
from shared.protocol import MAX_DRAFT_TOKENS, Draft
from shared.sampling.coupled_choice import RankedToken
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.slot_cache import SlotCache, common_prefix_length

Urgency = Literal["immediate", "soon", "batched"]
"""How soon to send a draft.

`immediate`: it has all the tokens that the lead verifies in one step, or all that it will get. `soon`: the
lead may be waiting for these tokens, and for a few more.
"""

_CONFIDENCE_DIGITS = 4


@dataclass(frozen=True, slots=True)
class DraftedToken:
    """A draft token, the draft model's confidence in it, and the runners-up, likeliest first."""

    token: int
    confidence: float
    runners_up: tuple[RankedToken, ...] = ()


@dataclass(slots=True)
class DraftPath:
    """Draft tokens at positions start, start + 1, …; `cache` and `sampler` also cover everything before them.

    The last token has been sampled but not decoded; `cache` holds those of the others that were decoded. But
    while a grammar is being followed, everything has been decoded, and `unranked` are the logits after it.
    """

    cache: SlotCache
    sampler: Sampler
    start: int
    drafted: list[DraftedToken] = field(default_factory=list)
    unranked: NDArray[np.float32] | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.drafted)

    @property
    def tokens(self) -> list[int]:
        return [each.token for each in self.drafted]

    @property
    def confidence(self) -> float:
        """The product of the tokens' confidences: the chance that all are right if their prefix is."""
        return math.prod(each.confidence for each in self.drafted)

    def n_matching(self, tokens: Sequence[int]) -> int:
        """The length of the common prefix of this path and `tokens`."""
        n = 0
        for each, token in zip(self.drafted, tokens, strict=False):
            if each.token != token:
                break
            n += 1
        return n

    def drop_before(self, start: int) -> None:
        """Remove the tokens at positions before `start`: they are committed now."""
        del self.drafted[: start - self.start]
        self.start = start

    def append(self, choices: Sequence[RankedToken]) -> None:
        """Add the first of `choices`; the others, in descending order, are its runners-up."""
        self.unranked = None
        first, *runners_up = choices
        self.drafted.append(DraftedToken(first.token, first.confidence, tuple(runners_up)))
        self.sampler.accept(first.token)


@dataclass(slots=True)
class SequenceState:
    """The cache of each path holds a window of the path and of the tokens before it.

    committed + main path        [0 ......................... main.end)
    the model's window           [window_start ...... up to n_window tokens)
    in the main path's cache     [window_start .. window_start + len(cache))
    main path                    [len(committed) .... main.end)
    a branch                          [start .... end)    instead of the main path's tokens there

    `group`: the same for all sequences of a lead; `options`: as that lead has tuned them. `unsent`: how soon
    to send the draft, which has grown since it was sent last; None: it has not.
    """

    id: str
    sampling: SamplingParameters
    committed: list[int]
    main: DraftPath
    options: DrafterOptions
    group: int = 0
    unsent: Urgency | None = None
    branches: list[DraftPath] = field(default_factory=list)
    window_start: int = 0
    can_branch: bool = True  # False after a branch has failed
    previous_cache: list[int] = field(default_factory=list)
    # what the slot held before this sequence, until the next decode

    @property
    def unranked(self) -> Iterator[DraftPath]:
        """The paths that wait for their grammar."""
        return (path for path in (self.main, *self.branches) if path.unranked is not None)

    def can_extend(self, end_tokens: Collection[int]) -> bool:
        """Whether the main path may get another token."""
        drafted = self.main.drafted
        if self.main.unranked is not None or not self.main.end or len(drafted) >= self.options.n_ahead:
            return False
        if not drafted:
            return True
        return drafted[-1].token not in end_tokens and self.main.confidence >= self.options.min_confidence

    def append(self, path: DraftPath, choices: Sequence[RankedToken], end_tokens: Collection[int]) -> None:
        """Add the first of `choices` to a path; the draft is to be sent."""
        path.append(choices)
        if self.unsent != "immediate":
            self.unsent = self._urgency(path, end_tokens)

    def _urgency(self, path: DraftPath, end_tokens: Collection[int]) -> Urgency:
        """How soon the lead should have the token that `path` has just got."""
        n_per_step = self.options.n_per_step
        if path is not self.main:
            return "batched"
        if len(path.drafted) == n_per_step or not self.can_extend(end_tokens):
            return "immediate"
        return "soon" if len(path.drafted) < n_per_step else "batched"

    def n_pending(self, path: DraftPath) -> int:
        """The number of tokens to decode before the path's next token can be sampled."""
        return path.end - self.window_start - len(path.cache)

    def n_pending_after_move(self, n_window: int) -> int:
        """What `n_pending` of the main path will be after `move_window`."""
        if 0 < self.main.end - self.window_start < n_window:
            return self.n_pending(self.main)
        return min(self.main.end, max(1, n_window // 2))

    def pending(self, path: DraftPath, n: int) -> list[int]:
        """The next `n` tokens to decode. The cache of a branch holds everything before the branch."""
        start = self.window_start + len(path.cache)
        if start >= path.start:
            return [each.token for each in path.drafted[start - path.start :][:n]]
        return [*self.committed[start : start + n], *path.tokens][:n]

    def commit(self, tokens: Sequence[int]) -> list[SlotCache]:
        """Add committed `tokens` and keep the part of the draft that agrees; returns the caches freed.

        If the tokens follow a branch, it becomes the main path, with all that has been decoded of it.
        """
        n_matching = self.main.n_matching(tokens)
        branch = self._branch_taken(tokens, n_matching)
        freed = []
        if branch:
            n_matching += branch.n_matching(tokens[n_matching:])
            freed = [self.main.cache, *self._drop_branches(keep=branch)]
            self.main = branch
        n_valid = len(self.committed) + n_matching
        self.committed += tokens
        if n_matching == len(tokens):
            self.main.drop_before(len(self.committed))
            return freed + self._drop_passed_branches()
        self.main.drafted = []
        self.main.unranked = None
        self.main.start = len(self.committed)
        self.main.cache.keep(max(0, n_valid - self.window_start))
        self.main.sampler.rewind(self.committed)
        return freed + self._drop_branches()

    def restore_cache(self) -> None:
        """Reuse more of the slot's previous contents: a long prompt arrives in several messages."""
        n = min(common_prefix_length(self.previous_cache, self.committed), len(self.committed) - 1)
        n = self.main.cache.reachable(n)
        if n > len(self.main.cache):
            self.main.cache.restore(self.previous_cache[:n])

    def move_window(self, n_window: int) -> list[SlotCache]:
        """Move a full window: its second half is decoded again, from position 0; returns the caches freed.

        Moves back if a rejected draft leaves fewer tokens than the start of the window. Any window is
        correct, because the lead verifies.
        """
        if 0 < self.main.end - self.window_start < n_window:
            return []
        self.window_start = max(0, self.main.end - max(1, n_window // 2))
        self.main.cache.keep(0)
        return self._drop_branches()

    def drop_branch(self, branch: DraftPath) -> SlotCache:
        """Remove a branch; returns its cache."""
        self.branches = [each for each in self.branches if each is not branch]
        return branch.cache

    def draft(self) -> Draft | None:
        """The whole draft, main path first; None without tokens.

        Branches of a single token are left out: the lead's own token at that position tells it as much.
        """
        if not self.main.drafted:
            return None
        drafted = list(self.main.drafted)
        parents = list(range(-1, len(drafted) - 1))
        for branch in sorted(self.branches, key=lambda each: (each.start, -each.drafted[0].confidence)):
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
            parents=parents if len(drafted) > len(self.main.drafted) else None,
            confidences=[round(each.confidence, _CONFIDENCE_DIGITS) for each in drafted],
        )

    def check_integrity(self) -> None:
        """Raise AssertionError unless all paths continue the committed tokens and hold no others."""
        base = len(self.committed)
        assert self.main.start == base, f"main path starts at {self.main.start}, committed ends at {base}"
        entries = {(branch.start, branch.drafted[0].token) for branch in self.branches}
        assert len(entries) == len(self.branches), "two branches begin with the same token"
        for path in (self.main, *self.branches):
            assert base <= path.start <= self.main.end
            text = [*self.committed, *self.main.tokens[: path.start - base], *path.tokens]
            end = self.window_start + len(path.cache)
            assert path.cache.tokens == text[self.window_start : end], (
                f"slot {path.cache.index} holds other tokens"
            )
            assert path is self.main or self.n_pending(path) == (1 if path.unranked is None else 0)

    def _branch_taken(self, tokens: Sequence[int], n_matching: int) -> DraftPath | None:
        """The branch that `tokens` follow after the first `n_matching`, which follow the main path."""
        fork = len(self.committed) + n_matching
        for branch in self.branches:
            if branch.start == fork and branch.n_matching(tokens[n_matching:]):
                return branch
        return None

    def _drop_branches(self, keep: DraftPath | None = None) -> list[SlotCache]:
        dropped = [branch.cache for branch in self.branches if branch is not keep]
        self.branches = []
        return dropped

    def _drop_passed_branches(self) -> list[SlotCache]:
        """Branches that start before the end of the committed tokens cannot be taken any more."""
        passed = [branch for branch in self.branches if branch.start < len(self.committed)]
        return [self.drop_branch(branch) for branch in passed]


Work = Sequence[tuple[SequenceState, DraftPath]]
"""The paths to decode, those of more importance first."""


def spans_of(work: Work, n_most: int, n_chunk: int) -> list[Span]:
    """A span for each path: one token if it is drafting; prompts share the rest of `n_most` tokens.

    n_chunk: tokens of prompts, at most, while a path is drafting.
    """
    n_spare = max(0, n_most - len(work))
    if any(state.n_pending(path) == 1 for state, path in work):
        n_spare = min(n_spare, n_chunk)
    spans = []
    for state, path in work:
        n_pending = state.n_pending(path)
        n = 1 + min(n_pending - 1, n_spare)
        n_spare -= n - 1
        n_logits = 1 if n == n_pending else 0
        spans.append(Span(path.cache.index, len(path.cache), state.pending(path, n), n_logits))
    return spans
