"""Measures the share of its own text that a draft model still drafts when it must translate.

In its own vocabulary, the model would draft this text without a mistake, so every mistake is the
translation's.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shared.llama.model import Model
from shared.llama.span import Span
from shared.translation.projection import Projection
from shared.translation.translating_model import TranslatingModel

_PROMPT = b"Once upon a time there was a fox"
_N_DRAFT_TOKENS = 96
_MIN_TOKENS = 16
"""A share of fewer tokens than this says nothing."""

N_CONTEXT = 192
"""The number of cells that the model needs."""


class Retention(NamedTuple):
    """The result of a measurement: `share` of `n_tokens` target tokens were drafted correctly."""

    share: float
    n_tokens: int


def measure_retention(model: Model, projection: Projection, prefix: Sequence[int]) -> Retention | None:
    """Measure the share with a text that the model writes at temperature 0; None if the text is too short.

    prefix: draft tokens before every text. The model's slot 0 must be empty, and is left empty.
    """
    text = _PROMPT + _written(model, projection, prefix)
    tokens = projection.target.encode(text)[:-1]  # the last one may be cut off
    n_first = len(projection.target.encode(_PROMPT))
    if len(tokens) - n_first < _MIN_TOKENS:
        return None
    translating = TranslatingModel(model, projection, prefix)
    n_right = n_followed(translating, tokens, n_first)
    translating.trim(0, 0)
    return Retention(n_right / (len(tokens) - n_first), len(tokens) - n_first)


def n_followed(model: TranslatingModel, tokens: Sequence[int], n_first: int) -> int:
    """Return the number of target tokens after the first `n_first` that are drafted correctly at temperature
    0.

    Each token is drafted separately, after the right tokens before it.
    """
    n_right = start = 0
    for end in range(n_first, len(tokens)):
        (rows,) = model.decode([Span(0, start, tokens[start:end], 1)])
        chosen = int(rows[0].argmax())
        while better := model.look_ahead({0: chosen}):
            chosen = int(better[0].argmax())
        n_right += chosen == tokens[end]
        start = end
    return n_right


def _written(model: Model, projection: Projection, prefix: Sequence[int]) -> bytes:
    """Return the text that the draft model itself writes after the prompt."""
    new = [*prefix, *projection.draft.encode(_PROMPT)]
    data, n_decoded = b"", 0
    for _ in range(_N_DRAFT_TOKENS):
        (rows,) = model.decode([Span(0, n_decoded, new, 1)])
        n_decoded += len(new)
        new = [int(rows[0].argmax())]
        if new[0] in model.vocabulary.end_tokens:
            break
        data += projection.draft.pieces[new[0]]
    model.trim(0, 0)
    return data
