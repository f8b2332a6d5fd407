"""A posted draft: a tree of tokens, and a cursor in it that follows the committed tokens."""

from collections.abc import Sequence
from typing import NamedTuple


class DraftToken(NamedTuple):
    """A proposed token. `confidence` is its source's own; None if the source gives none."""

    token: int
    confidence: float | None


class DraftTree:
    """The tokens follow the first `base` committed ones, as `shared.protocol.Draft` says.

    The cursor stands behind the committed tokens as long as they lie in the tree: what may still come true
    hangs below it. It starts at the root; `step` moves it.
    """

    __slots__ = ("_children", "_confidences", "_line", "_node", "_tokens", "base")

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
        self._node: int | None = -1
        self._line: list[DraftToken] | None = None  # asked for several times in each step

    def __len__(self) -> int:
        """All its tokens, those in the past, too."""
        return len(self._tokens)

    @property
    def alive(self) -> bool:
        """Whether any of its tokens may still come true."""
        return self._node is not None and bool(self._following(self._node))

    def proposed(self) -> DraftToken | None:
        """The likeliest next token."""
        following = self._following(self._node) if self._node is not None else ()
        return self._at(following[0]) if following else None

    def step(self, token: int) -> None:
        """`token` was committed behind the cursor."""
        self._line = None
        following = self._following(self._node) if self._node is not None else ()
        self._node = next((node for node in following if self._tokens[node] == token), None)

    def line(self) -> Sequence[DraftToken]:
        """What it proposes from the cursor on: the first branch at every fork."""
        if self._line is None:
            self._line = self._first_branches()
        return self._line

    def _first_branches(self) -> list[DraftToken]:
        node = self._node
        if node is None:
            return []
        if self._children is None:
            return [self._at(following) for following in range(node + 1, len(self._tokens))]
        line = []
        while following := self._children[node + 1]:
            node = following[0]
            line.append(self._at(node))
        return line

    def _following(self, node: int) -> Sequence[int]:
        if self._children is not None:
            return self._children[node + 1]
        return (node + 1,) if node + 1 < len(self._tokens) else ()

    def _at(self, node: int) -> DraftToken:
        return DraftToken(self._tokens[node], self._confidences[node] if self._confidences else None)
