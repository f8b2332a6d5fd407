"""The distribution of the next target token, from the draft model's distributions along one path of draft
tokens.

The path begins before the position in question and may extend beyond it:

    text, position at |      … the | ater
    path of draft tokens     … [ the][at]       weights: 1 after " the", P(at) after "at"
    what may follow                  ↳ er, e, …  [at] → er, …

At each node of the path, each possible next draft token counts for the first target token of the bytes that
it adds beyond the position. A draft token longer than the target's is split without another pass. A target
token longer than the draft model's gets its probability from nodes beyond the position (look-ahead).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shared.translation.projection import NONE, Projection

_SMALLEST_LOG = -13.0
"""Tokens e^13 times less likely than the likeliest are left out: every token takes time to project."""


@dataclass(frozen=True, slots=True, eq=False)
class NextTokens:
    """Possible next tokens of the draft model, by ascending id, and their probabilities. Very unlikely tokens
    are left out.
    """

    ids: NDArray[np.int32]
    probabilities: NDArray[np.float32]

    @classmethod
    def of(cls, logits: NDArray[np.float32]) -> Self:
        """Return the next tokens according to logits of shape (n_draft_vocab,), which are not kept."""
        largest = float(logits.max())
        ids = np.flatnonzero(logits > largest + _SMALLEST_LOG).astype(np.int32)
        weights = np.exp(logits[ids] - largest)
        return cls(ids, weights / weights.sum())

    def of_token(self, token: int) -> float:
        """Return the probability of a token."""
        place = int(np.searchsorted(self.ids, token))
        if place < len(self.ids) and self.ids[place] == token:
            return float(self.probabilities[place])
        return 0.0

    def in_range(self, ranks: NDArray[np.int32], start: int, end: int) -> "NextTokens":
        """Return the tokens with start <= ranks[token] < end; probabilities are not rescaled."""
        own = ranks[self.ids]
        return self.where((own >= start) & (own < end))

    def where(self, chosen: NDArray[np.bool_]) -> "NextTokens":
        """Return the tokens for which `chosen` is True."""
        return NextTokens(self.ids[chosen], self.probabilities[chosen])

    def without(self, token: int) -> "NextTokens":
        """Return the tokens without `token`."""
        return self.where(self.ids != token)

    def likeliest(self, n: int) -> "NextTokens":
        """Return the `n` most likely tokens, in any order."""
        if len(self.ids) <= n:
            return self
        best = np.argpartition(self.probabilities, len(self.ids) - n)[-n:]
        return NextTokens(self.ids[best], self.probabilities[best])

    @property
    def total(self) -> float:
        """The sum of the probabilities."""
        return float(self.probabilities.sum())


_N_SPLIT = 32
"""The number of draft tokens at a node whose target tokens are looked up; `_first_tokens` counts all others
as one.
"""

_HARDLY = 1e-17
"""Replaces a probability of 0, because filters compute with finite logits."""

_NO_IDS, _NO_WEIGHTS = np.empty(0, np.int32), np.empty(0, np.float64)


@dataclass(frozen=True, slots=True)
class Node:
    """The draft model's distribution after some draft tokens.

    end: the byte offset in the text after these tokens. following: the next draft token of the path.
    """

    end: int
    next_tokens: NextTokens
    following: int | None


class Reading(NamedTuple):
    """A draft token that counts for a target token: `token`, after the path's node `node`.

    data: the text beyond the position if that draft token follows. begins_token: a draft token then begins at
    the position.
    """

    node: int
    token: int
    data: bytes
    begins_token: bool


class Lattice:
    """Computes the distribution of the target token at one position from one path of draft tokens."""

    def __init__(
        self,
        projection: Projection,
        text: bytes,
        position: int,
        path: Sequence[Node],
        begun: Mapping[int, int] | None = None,
    ) -> None:
        """text: from offset 0, including the path's text after the position. path: nodes in order, at least
        one.

        position: an offset in bytes; the first node is at or before it. begun: maps an offset to the text's
        target token that begins there; draft tokens that begin with another target token are excluded.
        """
        self._projection = projection
        self._position = position
        self._path = path
        weight = 1.0
        self._parts: list[_Exits] = []
        for index, node in enumerate(path):
            rest = text[node.end : position]
            place = _Place(index, text[position : node.end], rest, weight, (begun or {}).get(node.end))
            self._parts.append(_leaving(projection, node, place))
            if node.following is not None:
                weight *= node.next_tokens.of_token(node.following)

    @property
    def n_nodes(self) -> int:
        """The length of the path."""
        return len(self._path)

    def logits(self) -> NDArray[np.float32]:
        """Return logits of shape (n_target_vocab,), finite even for tokens that the draft model does not
        expect.
        """
        n_target = len(self._projection.target)
        targets = np.concatenate([_NO_IDS, *(part.targets for part in self._parts)])
        weights = np.concatenate([_NO_WEIGHTS, *(part.weights for part in self._parts)])
        found = np.bincount(targets, weights, n_target)[targets]
        logits = np.full(n_target, math.log(_HARDLY), np.float32)
        logits[targets] = np.log(np.maximum(found, _HARDLY))  # for few tokens: the others cost nothing
        return logits

    def best_reading(self, token: int) -> Reading | None:
        """Return the most likely reading of a target token; None if there is none."""
        best = max(
            (found for part in self._parts if (found := part.best(token))), default=None, key=lambda it: it[0]
        )
        if best is None:
            return None
        _, part, draft = best
        place, piece = part.place, self._projection.draft.pieces[draft]
        begins_token = any(node.end == self._position for node in self._path[: place.node + 1])
        return Reading(place.node, draft, place.lead + piece[len(place.rest) :], begins_token)


class _Place(NamedTuple):
    """The place of a node. lead: the text from the position to the node. rest: the text from the node to the
    position.

    weight: the probability of the path to the node. begun: the target token that `rest` begins with, if
    known.
    """

    node: int
    lead: bytes
    rest: bytes
    weight: float
    begun: int | None


@dataclass(frozen=True, slots=True)
class _Exits:
    """The draft tokens that leave the path at one node, their target tokens and probabilities."""

    place: _Place
    drafts: NDArray[np.int32]
    targets: NDArray[np.int32]
    weights: NDArray[np.float64]

    def best(self, token: int) -> "tuple[float, _Exits, int] | None":
        places = np.flatnonzero((self.targets == token) & (self.drafts != NONE))
        if not len(places):
            return None
        place = places[self.weights[places].argmax()]
        return float(self.weights[place]), self, int(self.drafts[place])


def inside(projection: Projection, following: NextTokens, rest: bytes, begun: int | None) -> NextTokens:
    """Return the draft tokens of `following` that begin with `rest` and are longer.

    begun: the target token that `rest` begins with, if known, which rules out tokens that the target would
    have split differently.
    """
    longer = following.in_range(projection.draft.ranks, *projection.draft.continuing(rest))
    return longer if begun is None else longer.where(projection.whole[longer.ids] == begun)


def _leaving(projection: Projection, node: Node, place: _Place) -> _Exits:
    leaving = node.next_tokens
    if node.following is not None:
        leaving = leaving.without(node.following)
    if place.rest:
        leaving = inside(projection, leaving, place.rest, place.begun)
    if place.lead or place.rest:
        leaving, targets = _first_tokens(projection, leaving, place)
    else:
        targets = projection.whole[leaving.ids]
    drafts, weights = leaving.ids, leaving.probabilities.astype(np.float64) * place.weight
    known = targets != NONE
    if not known.all():
        drafts, targets, weights = drafts[known], targets[known], weights[known]
    return _Exits(place, drafts, targets, weights)


def _first_tokens(
    projection: Projection, leaving: NextTokens, place: _Place
) -> tuple[NextTokens, NDArray[np.int32]]:
    """Return the likeliest draft tokens and their target tokens. All others count as one draft token, NONE,
    for the first target token of `lead`.
    """
    likeliest = leaving.likeliest(_N_SPLIT)
    pieces, n_known = projection.draft.pieces, len(place.rest)
    targets = [
        projection.first(place.lead + pieces[token][n_known:]) if pieces[token] else NONE
        for token in likeliest.ids.tolist()
    ]
    remaining = leaving.total - likeliest.total
    if place.lead and remaining > 0:
        likeliest = NextTokens(
            np.append(likeliest.ids, np.int32(NONE)),
            np.append(likeliest.probabilities, np.float32(remaining)),
        )
        targets.append(projection.first(place.lead))
    return likeliest, np.array(targets, np.int32)
