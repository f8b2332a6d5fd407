"""What translating costs: time for a drafted token, over the same model drafting in its own vocabulary.

Random models of several widths with real vocabularies: what they draft means nothing, and takes as long as if
it did. Their logits spread as those of trained models do. Both ways take turns, on one thread.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import table
from bench.tiny_models import TinyModel, write_tiny_model
from shared.drafting.interfaces import LookAhead
from shared.llama.model import Model
from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions
from shared.translation.stored_pair import stored_pair
from shared.translation.translating_model import TranslatingModel
from shared.translation.vocabulary_pair import prefix_of

_COLUMNS = {
    "width": ("width", "d"),
    "own_ms": ("ms a token, own vocabulary", ".2f"),
    "translated_ms": ("translated", ".2f"),
    "ratio": ("ratio", ".2f"),
    "more_ms": ("ms more", ".2f"),
    "passes": ("passes a token", ".2f"),
}
_WIDTHS = (64, 256, 896)
_N_ROUNDS = 8
_N_TOKENS = 16
"""In each round: a draft as long as backs make them."""
_STANDARD_DEVIATION = 5.0
"""Of logits: the likeliest of 100,000 tokens is then about 20 above their mean, as trained models have it."""
_BEGINNING = "Once upon a time there was a fox"


class CountingModel(Model):
    """Counts its forward passes."""

    n_passes = 0

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        self.n_passes += 1
        return super().decode(spans)


def run(draft: Path, target: Vocabulary) -> list[dict[str, Any]]:
    """A row for each width, printed as a table; draft, target: the vocabularies."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [_measure(width, draft, target, Path(folder) / f"{width}.gguf") for width in _WIDTHS]
    table.show(f"{draft.stem} drafts for {target.info.path.stem}", rows, _COLUMNS)
    return rows


def _measure(width: int, vocabulary: Path, target: Vocabulary, path: Path) -> dict[str, Any]:
    sd = _STANDARD_DEVIATION / width**0.5
    write_tiny_model(TinyModel("llama", width=width, n_layers=4, sd=sd), path, vocabulary)
    model = CountingModel(path, ModelOptions(ctx_size=1024, parallel=1, threads=1))
    path.unlink()
    own = model.vocabulary
    translating = TranslatingModel(model, stored_pair(own, target), prefix_of(own, target))
    plain_seconds, translated_seconds, n_passes = [], [], 0
    for seed in range(_N_ROUNDS):
        model.trim(0, 0)
        plain_seconds.append(_draft(model, own, seed, lambda _: {}))
        model.trim(0, 0)
        translating.trim(0, 0)
        n_before = model.n_passes
        translated_seconds.append(_draft(translating, target, seed, translating.look_ahead))
        n_passes += model.n_passes - n_before - 1  # the first one reads the beginning
    model.close()
    own_ms, translated_ms = (1000 * float(np.median(each)) for each in (plain_seconds, translated_seconds))
    return {
        "width": width,
        "own_ms": own_ms,
        "translated_ms": translated_ms,
        "ratio": translated_ms / own_ms,
        "more_ms": translated_ms - own_ms,
        "passes": n_passes / _N_ROUNDS / _N_TOKENS,
    }


def _draft(
    model: Model | TranslatingModel, vocabulary: Vocabulary, seed: int, look_ahead: LookAhead
) -> float:
    """Seconds for a token of a draft, without the pass that reads the beginning."""
    tokens = vocabulary.tokenize(_BEGINNING, add_special=True, parse_special=False)
    sampler = make_sampler(SamplingParameters(seed=seed), vocabulary, tokens)
    (rows,) = model.decode([Span(0, 0, tokens, 1)])
    began = time.perf_counter()
    for _ in range(_N_TOKENS):
        token = sampler.choose(rows[0], len(tokens))
        while better := look_ahead({0: token}):
            token = sampler.choose(better[0], len(tokens))
        tokens.append(token)
        (rows,) = model.decode([Span(0, len(tokens) - 1, [token], 1)])
    return (time.perf_counter() - began) / _N_TOKENS
