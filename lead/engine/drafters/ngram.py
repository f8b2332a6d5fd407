"""The source "ngram": what followed an earlier occurrence of the sequence's last tokens.

Needs no model: where text repeats itself (an edited file, a quoted passage) it is its own best draft.
"""

from collections.abc import Sequence

from lead.engine.drafters.continuation import Continuation, CopiedPassage, follow, longest_first
from lead.engine.drafters.local_drafter import LocalDrafter
from lead.engine.drafters.suffix_index import SuffixIndex


class NgramDrafter(LocalDrafter):
    """Drafts for one sequence. `tokens` is always its whole text, which only grows; no copy is kept."""

    def __init__(self, n_bits: int = 16) -> None:
        """Each of the two tables of its index has 2**n_bits entries."""
        self._index = SuffixIndex(n_bits)
        self._copy = CopiedPassage()

    def extend(self, tokens: Sequence[int]) -> None:
        """Index what is new in `tokens`, in linear time; `draft` does it, too."""
        self._index.extend(tokens)

    def draft(self, tokens: Sequence[int], max_tokens: int) -> Continuation:
        """At most `max_tokens` tokens to follow `tokens`; nothing if their end has not occurred before.

        They continue the longest match, the newest of equally long ones.
        """
        self.extend(tokens)
        places = self._copy.among(self._index.places(tokens), len(tokens))
        matches = longest_first(tokens, places, tokens)
        self._copy.follow(matches, len(tokens))
        return follow(tokens, matches, max_tokens, wraps=True) if matches else ([], [])
