"""The batch of a step: which tokens of which paths are decoded."""

from collections.abc import Sequence

from shared.drafting.draft_path import DraftPath
from shared.drafting.sequence_state import SequenceState
from shared.llama.span import Span

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
