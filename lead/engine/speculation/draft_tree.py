"""A posted draft: a tree of tokens with a cursor that follows the committed tokens."""

from collections.abc import Sequence
from typing import NamedTuple


class DraftToken(NamedTuple):
    """A proposed token. `confidence` is its source's own; None if the source gives none."""

    token: int
    confidence: float | None


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
