"""How often drafts of a model with another tokenizer are the target's choice, by the way of translating.

Along texts that the target samples, at every position: the shipped draft model, which has the target's
tokenizer; the other one translated as backs do; and in two simple ways. As text: it writes some tokens at
temperature 0, and the target's tokenizer cuts them (llama.cpp had this until PR #22787). Common tokens: only
those that both vocabularies have may be drafted (TLI, arXiv 2502.05202), here under the same noise as ours.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.llama.model import Model
from shared.llama.span import Span
from shared.models.builtin import builtin_draft, builtin_target
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler
from shared.settings.model_options import ModelOptions
from shared.translation.projection import Projection
from shared.translation.stored_pair import stored_pair
from shared.translation.translating_model import TranslatingModel
from shared.translation.vocabulary_pair import prefix_of

TEMPERATURES = (0.0, 0.8, 1.0)
COLUMNS = {
    "draft": ("draft model", ""),
    "exact": ("exact tokens", ".0%"),
    "temperature": ("temperature", "g"),
    "n_positions": ("positions", "d"),
    "same_tokenizer": ("target's tokenizer", ".3f"),
    "translated": ("translated", ".3f"),
    "of_same": ("translated / target's", ".2f"),
    "as_text": ("as text", ".3f"),
    "common_tokens": ("common tokens", ".3f"),
}
_N_WRITTEN = 4
"""Draft tokens that are written before they are cut as text: mostly more than one of the target's."""
_HARDLY = -40.0
_CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class Found:
    """Whether each way proposed the target's token at one position."""

    same_tokenizer: bool
    translated: bool
    as_text: bool
    common_tokens: bool


class TextReader:
    """The draft model, reading texts as its own tokenizer cuts them."""

    def __init__(self, path: Path, projection: Projection) -> None:
        self._model = _load(path)
        self._projection = projection
        vocabulary = self._model.vocabulary
        self._prefix = [vocabulary.bos] if vocabulary.adds_bos and vocabulary.bos is not None else []
        self._tokens: list[int] = []
        exact = [projection.target.token_of(piece) for piece in projection.draft.pieces]
        self._common = np.array([(own, token) for own, token in enumerate(exact) if token is not None])

    def common_tokens(self, text: bytes) -> NDArray[np.float32]:
        """Logits of the target's tokens: of those that the draft model has, too."""
        logits = np.full(len(self._projection.target), _HARDLY, np.float32)
        row = self._read(self._cut(text))
        own, theirs = self._common.T
        logits[theirs] = row[own] - row[own].max()
        return logits

    def as_text(self, text: bytes) -> int:
        """The first target token of what the draft model writes."""
        tokens = self._cut(text)
        written = b""
        for _ in range(_N_WRITTEN):
            tokens.append(int(self._read(tokens).argmax()))
            written += self._projection.draft.pieces[tokens[-1]]
        return self._projection.first(written)

    def _cut(self, text: bytes) -> list[int]:
        return self._prefix + self._projection.draft.encode(text)

    def _read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        n_most = min(len(self._tokens), len(tokens) - 1)
        n_keep = next((n for n in range(n_most) if self._tokens[n] != tokens[n]), n_most)
        self._model.trim(0, n_keep)
        self._tokens = list(tokens)
        return _logits(self._model, tokens, n_keep)


class Ways:
    """One draft model with another tokenizer, beside the shipped pair."""

    def __init__(self, path: Path) -> None:
        """Raises TranslationError."""
        self._target, self._same = _load(builtin_target()), _load(builtin_draft())
        foreign = _load(path)
        self.name = foreign.vocabulary.info.name
        self.projection = stored_pair(foreign.vocabulary, self._target.vocabulary)
        prefix = prefix_of(foreign.vocabulary, self._target.vocabulary)
        self._translating = TranslatingModel(foreign, self.projection, prefix)
        self._reader = TextReader(path, self.projection)

    def along(self, prompt: str, parameters: SamplingParameters, n_tokens: int) -> Iterator[Found]:
        """What is found at the positions of one text that the target samples."""
        vocabulary = self._target.vocabulary
        tokens = vocabulary.tokenize(prompt, add_special=True, parse_special=True)
        sampler = make_sampler(parameters, vocabulary, tokens)
        for model in (self._target, self._same, self._translating):
            model.trim(0, 0)
        n_done = 0
        for _ in range(n_tokens):
            position = len(tokens)
            chosen, same = (
                sampler.choose(_logits(model, tokens, n_done), position)
                for model in (self._target, self._same)
            )
            text = b"".join(self.projection.target.pieces[token] for token in tokens)
            yield Found(
                same == chosen,
                self._translated(sampler, tokens, n_done) == chosen,
                self._reader.as_text(text) == chosen,
                sampler.choose(self._reader.common_tokens(text), position) == chosen,
            )
            n_done = position
            tokens.append(chosen)
            if chosen in vocabulary.end_tokens:
                return

    def _translated(self, sampler: Sampler, tokens: Sequence[int], n_done: int) -> int:
        (rows,) = self._translating.decode([Span(0, n_done, tokens[n_done:], 1)])
        token = sampler.choose(rows[0], len(tokens))
        while better := self._translating.look_ahead({0: token}):
            token = sampler.choose(better[0], len(tokens))
        return token


def measure(
    path: Path, prompts: Sequence[str], n_seeds: int, n_tokens: int
) -> Iterator[dict[str, float | str | None]]:
    """A row for each temperature; raises TranslationError."""
    ways = Ways(path)
    for temperature in TEMPERATURES:
        found: list[Found] = []
        for prompt, seed in itertools.product(prompts, range(n_seeds if temperature else 1)):
            parameters = SamplingParameters(seed=seed, temperature=temperature, top_k=0, top_p=1, min_p=0)
            found += ways.along(prompt, parameters, n_tokens)
        shares = {name: float(np.mean([getattr(each, name) for each in found])) for name in Found.__slots__}
        yield {
            "draft": ways.name,
            "exact": ways.projection.share_exact,
            "temperature": temperature,
            "n_positions": len(found),
            **shares,
            "of_same": shares["translated"] / shares["same_tokenizer"] if shares["same_tokenizer"] else None,
        }


def _load(path: Path) -> Model:
    return Model(path, ModelOptions(ctx_size=_CONTEXT, parallel=1, threads=1))


def _logits(model: Model, tokens: Sequence[int], n_done: int) -> NDArray[np.float32]:
    (rows,) = model.decode([Span(0, n_done, tokens[n_done:], 1)])
    return np.array(rows[0])
