"""The source "prediction": the text that the client expects, from the answer's current place in it.

A client that asks for a file with one change sends the file (OpenAI's request field `prediction`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lead.engine.drafters.continuation import SHORTEST_MATCH, Continuation, Match, follow, match_length
from lead.engine.drafters.local_drafter import LocalDrafter

_TRUST = 6
"""The length of the initial match: how far the client's prediction is trusted at first."""
_MOST_PLACES = 8
"""The number of occurrences of the answer's last tokens to compare: the nearest ones."""


class PredictionDrafter(LocalDrafter):
    """Drafts for one sequence. `tokens` is always its whole text, which only grows; no copy is kept."""

    def __init__(self, prediction: Sequence[int], n_prompt: int) -> None:
        """The answer, after the sequence's first `n_prompt` tokens, may resemble `prediction`."""
        self._text = list(prediction)
        self._array: NDArray[np.int32] = np.array(self._text, np.int32)
        self._n_seen = n_prompt
        self._here: Match | None = Match(_TRUST, 0)
        self._left = 0  # where the answer was last seen to follow the prediction

    def draft(self, tokens: Sequence[int], max_tokens: int) -> Continuation:
        """At most `max_tokens` tokens to follow `tokens`; none where the prediction has ended."""
        matches = self._matches(tokens)
        return follow(self._text, matches, max_tokens, wraps=False) if matches else ([], [])

    def _matches(self, tokens: Sequence[int]) -> list[Match]:
        """Where the answer may be in the prediction, the best first."""
        new = list(tokens[self._n_seen :])
        if new:
            self._n_seen = len(tokens)
            here = self._here
            if here is None or self._text[here.at : here.at + len(new)] != new:
                return self._resume(tokens)
            self._here = Match(here.length + len(new), here.at + len(new))
            self._left = self._here.at
        return [self._here] if self._here else []

    def _resume(self, tokens: Sequence[int]) -> list[Match]:
        """Find the last tokens again: the longest match first, of equally long ones the nearest."""
        places = self._places(tokens[-SHORTEST_MATCH:])
        matches = [Match(match_length(self._text, at, tokens, len(tokens)), at) for at in places]
        matches.sort(key=lambda match: -match.length)
        self._here = matches[0] if matches else None
        return matches

    def _places(self, last: Sequence[int]) -> list[int]:
        """Where the last two tokens end in the prediction: places ahead, nearest first, then the others."""
        if len(last) < SHORTEST_MATCH:
            return []
        found = (self._array[:-1] == last[0]) & (self._array[1:] == last[1])
        places = SHORTEST_MATCH + np.flatnonzero(found)
        n_passed = int(np.searchsorted(places, self._left))
        ahead = places[n_passed : n_passed + _MOST_PLACES]
        passed = places[max(0, n_passed - _MOST_PLACES) : n_passed]
        return [*ahead.tolist(), *passed[::-1].tolist()][:_MOST_PLACES]
