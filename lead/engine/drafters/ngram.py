"""The source "ngram": what followed an earlier occurrence of the sequence's last tokens.

Needs no model: where text repeats itself (an edited file, a quoted passage) it is its own best draft.
"""

from collections.abc import Sequence

from lead.engine.drafters.continuation import SHORTEST_MATCH, Continuation, Match, follow, match_length
from lead.engine.drafters.suffix_index import SuffixIndex


class NgramDrafter:
    """Drafts for one sequence. `tokens` is always its whole text, which only grows; no copy is kept."""

    def __init__(self, n_bits: int = 16) -> None:
        """Each of the two tables of its index has 2**n_bits entries."""
        self._index = SuffixIndex(n_bits)
        self._n_tokens = 0
        self._followed = 0  # where, in a text of that length, the last draft began

    def extend(self, tokens: Sequence[int]) -> None:
        """Index what is new in `tokens`, in linear time; `draft` does it, too."""
        self._index.extend(tokens)

    def draft(self, tokens: Sequence[int], max_tokens: int) -> Continuation:
        """At most `max_tokens` tokens to follow `tokens`; nothing if their end has not occurred before.

        They continue the longest match, the newest of equally long ones.
        """
        self.extend(tokens)
        matches = self._matches(tokens)
        if not matches:
            self._followed = 0
            return [], []
        self._n_tokens, self._followed = len(tokens), matches[0].at
        return follow(tokens, matches, max_tokens, wraps=True)

    def _matches(self, tokens: Sequence[int]) -> list[Match]:
        """The best first."""
        end = len(tokens)
        places = self._index.places(tokens)
        if self._followed:  # a copy goes on even if its place is no longer in the table
            place = self._followed + end - self._n_tokens
            if place not in places:
                places.append(place)
        found = [Match(match_length(tokens, at, tokens, end), at) for at in places]
        return sorted((match for match in found if match.length >= SHORTEST_MATCH), reverse=True)
