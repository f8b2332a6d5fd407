"""A sequence that is followed: its committed tokens, its draft's main line, the branches beside that."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from back.line import Line
from shared.protocol import MAX_DRAFT_TOKENS, Draft
from shared.sampling.sampler import SamplingParameters
from shared.slot_cache import SlotCache, n_alike

_CONFIDENCE_DIGITS = 4


@dataclass(slots=True)
class Followed:
    """The cache of each line holds a window of what the line continues and of the line itself.

    committed + main line        [0 ......................... main.end)
    the model's window           [window_start ...... up to n_window tokens)
    in the main line's cache     [window_start .. window_start + len(cache))
    main line                    [len(committed) .... main.end)
    a branch                          [start .... end)    instead of the main line's tokens there
    """

    id: str
    sampling: SamplingParameters
    committed: list[int]
    main: Line
    branches: list[Line] = field(default_factory=list)
    window_start: int = 0
    branches_well: bool = True  # no side branch has failed
    cached: list[int] = field(default_factory=list)  # what its slot held before, until the next step

    def n_todo(self, line: Line) -> int:
        """Tokens to decode before the next one can be drafted."""
        return line.end - self.window_start - len(line.cache)

    def todo(self, line: Line, n: int) -> list[int]:
        """The next `n` tokens to decode. A branch begins with a cache of all that is before it."""
        start = self.window_start + len(line.cache)
        if start >= line.start:
            return [each.token for each in line.drafted[start - line.start :][:n]]
        return [*self.committed[start : start + n], *line.tokens][:n]

    def advance(self, tokens: Sequence[int]) -> list[SlotCache]:
        """The lead has committed `tokens`: keep what agrees; the caches of lines that were given up.

        Where they leave the main line on a branch, that becomes the main line with all that is decoded of it.
        """
        n_agreeing = self.main.agreeing(tokens)
        branch = self._branch_to(tokens, n_agreeing)
        unused = []
        if branch:
            n_agreeing += branch.agreeing(tokens[n_agreeing:])
            unused = [self.main.cache, *self._drop_branches(keep=branch)]
            self.main = branch
        n_valid = len(self.committed) + n_agreeing
        self.committed += tokens
        if n_agreeing == len(tokens):
            self.main.cut(len(self.committed))
            return unused + self._drop_passed()
        self.main.drafted = []
        self.main.start = len(self.committed)
        self.main.cache.keep(max(0, n_valid - self.window_start))
        self.main.sampler.rewind(self.committed)
        return unused + self._drop_branches()

    def revive(self) -> None:
        """A long text arrives in parts: what its slot held before may serve more of it than of the first."""
        n = min(n_alike(self.cached, self.committed), len(self.committed) - 1)
        if n > len(self.main.cache):
            self.main.cache.revive(self.cached[:n])

    def slide(self, n_window: int) -> list[SlotCache]:
        """Move a window that is full: read its later half anew, from position 0; the caches given up.

        Back again, too, when a rejected draft leaves the text shorter than the window's start.
        Drafting stays right with any window, because the lead verifies.
        """
        if 0 < self.main.end - self.window_start < n_window:
            return []
        self.window_start = max(0, self.main.end - max(1, n_window // 2))
        self.main.cache.keep(0)
        return self._drop_branches()

    def drop(self, branch: Line) -> SlotCache:
        """Give up a branch; its cache."""
        self.branches = [each for each in self.branches if each is not branch]
        return branch.cache

    def draft(self) -> Draft | None:
        """All that is drafted, the main line first; no lone runner-ups, which the lead comes to by itself."""
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
        """Raise AssertionError unless all lines continue the committed tokens and hold no others."""
        base = len(self.committed)
        assert self.main.start == base, f"main line starts at {self.main.start}, committed ends at {base}"
        entries = {(branch.start, branch.drafted[0].token) for branch in self.branches}
        assert len(entries) == len(self.branches), "two branches that begin alike"
        for line in (self.main, *self.branches):
            assert base <= line.start <= self.main.end
            text = [*self.committed, *self.main.tokens[: line.start - base], *line.tokens]
            end = self.window_start + len(line.cache)
            assert line.cache.tokens == text[self.window_start : end], (
                f"slot {line.cache.index} holds another text"
            )
            assert line is self.main or self.n_todo(line) == 1

    def _branch_to(self, tokens: Sequence[int], n_agreeing: int) -> Line | None:
        """The branch that the text takes where it leaves the main line."""
        fork = len(self.committed) + n_agreeing
        for branch in self.branches:
            if branch.start == fork and branch.agreeing(tokens[n_agreeing:]):
                return branch
        return None

    def _drop_branches(self, keep: Line | None = None) -> list[SlotCache]:
        dropped = [branch.cache for branch in self.branches if branch is not keep]
        self.branches = []
        return dropped

    def _drop_passed(self) -> list[SlotCache]:
        """Branches before the committed tokens' end are not taken any more."""
        passed = [branch for branch in self.branches if branch.start < len(self.committed)]
        return [self.drop(branch) for branch in passed]
