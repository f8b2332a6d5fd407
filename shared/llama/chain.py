"""llama.cpp's sampler chain as filters: it narrows the candidates, it never chooses.

A vocabulary has up to some hundred thousand tokens and next to none of them can be chosen. What certainly
cannot is left out here, with numpy; what could is judged by llama.cpp's own samplers, with its arithmetic.
The candidates are those of the whole chain over the whole vocabulary.
"""

import math
from collections import deque
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.llama.bias import biases
from shared.llama.grammar import GrammarMatcher
from shared.llama.memory import penalties
from shared.llama.native_chain import NativeChain
from shared.llama.ordered_chain import OrderedChain
from shared.llama.vocabulary import Vocabulary
from shared.sampling.constrained import ConstrainedSampler
from shared.sampling.sampler import Sampler, SamplingParameters, every_token, needs_filters
from shared.sampling.top_k import top_k

_COLDEST = 1e-6
"""Colder than this no noise can change the choice any more, but logits would overflow."""

_SLACK = 1e-4
"""More than two logarithms of the same number in 32 bits can differ by."""


class Chain:
    """The common filters of one sequence, in llama-server's default order; a `Filters`.

    Takes parameters that are `is_common`; `shared.llama.ordered_chain` takes all.

    The order is bias, penalties, top-k, typical-p, top-p, min-p, temperature. Of equal logits top-k keeps
    those of the lowest ids: llama.cpp leaves that to its sort, but lead and backs must agree.
    """

    def __init__(self, parameters: SamplingParameters, n_vocab: int, end_tokens: frozenset[int]) -> None:
        self._n_vocab = n_vocab
        bias = biases(parameters, n_vocab, end_tokens)
        adjusts = bias or parameters.penalizes
        self._adjustment = _Adjustment(parameters, bias, n_vocab) if adjusts else None
        self._top_k = max(parameters.top_k, 0)
        self._temperature = np.float32(max(parameters.temperature, _COLDEST))
        self._scales = parameters.temperature not in {0, 1}
        self._narrows_by_min_p_alone = parameters.top_p == 1 and not self._top_k
        self._cut = _cut(parameters)
        samplers = _samplers(parameters)
        self._narrowing = NativeChain([*samplers, *_temperature(parameters)]) if samplers else None

    def apply(
        self, logits: NDArray[np.float32], _position: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(ids, logits) of the candidates left, in no particular order; valid until the next call.

        Where every token stays, the ids are `every_token` itself.
        """
        if self._adjustment:
            logits = self._adjustment.apply(logits)
        ids: NDArray[Any] = every_token(self._n_vocab)
        if self._top_k:
            ids = top_k(logits, self._top_k)
            logits = logits[ids]
            if self._cut is not None and (len(ids) == 1 or logits[1] < logits[0] + self._cut):
                ids, logits = ids[:1], logits[:1]
                return ids.astype(np.int32), self._scaled(logits)
        elif self._cut is not None:
            near = (logits >= logits.max() + self._cut).nonzero()[0]
            if len(near) == 1:
                return near.astype(np.int32), self._scaled(logits[near])
            if self._narrows_by_min_p_alone and len(near):
                ids, logits = near, logits[near]
        if self._narrowing is None:
            return ids.astype(np.int32, copy=False), self._scaled(logits)
        return self._narrowing.apply(ids, logits, are_sorted=bool(self._top_k))

    def accept(self, token: int) -> None:
        """Take note of a token, for the penalties."""
        if self._adjustment:
            self._adjustment.accept(token)

    def reset(self) -> None:
        """Forget all tokens."""
        if self._adjustment:
            self._adjustment.reset()

    def _scaled(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return logits / self._temperature if self._scales else logits


class _Adjustment:
    """Bias and penalties, which change the logits of few tokens: those in the window, those with a bias."""

    def __init__(self, parameters: SamplingParameters, bias: dict[int, float], n_vocab: int) -> None:
        self._biased = np.fromiter(bias.keys(), np.int32, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))
        self._penalties = NativeChain([penalties(parameters, n_vocab)]) if parameters.penalizes else None
        self._window: deque[int] = deque(maxlen=parameters.penalties_window)
        self._adjusted = np.empty(0, np.float32)

    def apply(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """A copy with the changes, valid until the next call."""
        if len(self._adjusted) != len(logits):
            self._adjusted = np.empty_like(logits)
        adjusted = self._adjusted
        np.copyto(adjusted, logits)
        if len(self._biased):
            adjusted[self._biased] += self._bias
        if self._penalties and self._window:
            # A token that is there twice gets the same new logit twice.
            recent = np.fromiter(self._window, np.int32, len(self._window))
            _, penalized = self._penalties.apply(recent, adjusted[recent], are_sorted=False)
            adjusted[recent] = penalized
        return adjusted

    def accept(self, token: int) -> None:
        self._window.append(token)
        if self._penalties:
            self._penalties.accept(token)

    def reset(self) -> None:
        self._window.clear()
        if self._penalties:
            self._penalties.reset()


def make_sampler(
    parameters: SamplingParameters, vocabulary: Vocabulary, history: list[int], like: Sampler | None = None
) -> Sampler:
    """The sampler of one sequence whose tokens so far are `history`.

    `like`, one with the same parameters and a text that begins alike, spares reading all of it by a grammar.
    Raises ValueError for a grammar that cannot be compiled.
    """
    n_vocab, end_tokens = vocabulary.n_tokens, vocabulary.end_tokens
    if parameters.is_common:
        common = Chain(parameters, n_vocab, end_tokens) if needs_filters(parameters) else None
        return Sampler(parameters, common, history)
    filters = None
    if needs_filters(parameters):
        filters = OrderedChain(parameters, n_vocab, end_tokens, vocabulary)
    if parameters.grammar is None:
        return Sampler(parameters, filters, history)
    beginning = (
        like if isinstance(like, ConstrainedSampler) else GrammarMatcher(parameters.grammar, vocabulary)
    )
    return ConstrainedSampler(parameters, filters, history, beginning, min(end_tokens, default=0))


def _cut(parameters: SamplingParameters) -> np.float32 | None:
    """Min-p certainly drops a token whose logit is less than the largest one plus this, if nothing else does.

    None where it drops nothing, or where typical-p may have taken the likeliest token before. llama.cpp drops
    what is below the 32-bit sum of the largest logit and ln(min_p). Rounding keeps the order of sums, so one
    with less than ln(min_p) is never above it.
    """
    min_p = float(np.float32(parameters.min_p))
    if min_p <= 0 or parameters.typical_p < 1:
        return None
    return np.float32(math.log(min_p) - _SLACK)


def _samplers(parameters: SamplingParameters) -> list[Any]:
    """What narrows the candidates after top-k."""
    chosen: list[Any] = []
    if parameters.typical_p < 1:
        chosen.append(llama_cpp.llama_sampler_init_typical(parameters.typical_p, 1))
    if parameters.top_p < 1:
        chosen.append(llama_cpp.llama_sampler_init_top_p(parameters.top_p, 1))
    if parameters.min_p > 0:
        chosen.append(llama_cpp.llama_sampler_init_min_p(parameters.min_p, 1))
    return chosen


def _temperature(parameters: SamplingParameters) -> list[Any]:
    if parameters.temperature == 0:
        return []
    return [llama_cpp.llama_sampler_init_temp(max(parameters.temperature, _COLDEST))]
