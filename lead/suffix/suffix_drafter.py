"""The source "suffix": the tokens that followed the last tokens in a recent text of the same owner.

Agents and editors repeat themselves across requests (SuffixDecoding, Oliaro et al., arXiv 2411.04975).
"""

from collections.abc import Sequence

from lead.engine.drafters.draft_source import Continuation, LookupDrafter
from lead.engine.drafters.lookup import LONGEST_MATCH, CopiedPassage, follow, longest_first
from lead.suffix.seen_texts import SeenTexts, mark, unmark


class SuffixDrafter(LookupDrafter):
    """The source "suffix" of one sequence of `owner`; the sequence is added to `texts` when it has ended."""

    def __init__(self, texts: SeenTexts, owner: int) -> None:
        self._texts = texts
        self._owner = owner
        self._copy = CopiedPassage()

    def draft(self, tokens: Sequence[int], max_tokens: int) -> Continuation:
        """Return a draft of at most `max_tokens` tokens; empty if no text contains the last tokens."""
        texts, end = self._texts, mark(self._owner, tokens[-LONGEST_MATCH:])
        matches = longest_first(texts, self._copy.among(texts.places(end), len(tokens)), end)
        self._copy.follow(matches, len(tokens))
        if not matches:
            return [], []
        marked, confidences = follow(texts, matches, max_tokens, wraps=False)
        drafted = unmark(self._owner, marked)
        return drafted, confidences[: len(drafted)]

    def close(self, tokens: Sequence[int]) -> None:
        self._texts.add(self._owner, tokens)
