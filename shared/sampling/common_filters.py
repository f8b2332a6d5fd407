"""The usual samplers of llama.cpp as filters: they narrow the candidates and choose none.

Only a few of the vocabulary's up to several hundred thousand tokens can be chosen. Tokens that certainly
cannot are removed with numpy; llama.cpp's own samplers, with its arithmetic, decide on the rest. The result
equals that of the whole chain over the whole vocabulary.
"""

import math
from collections import deque
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.sampling.coupled_choice import every_token
from shared.sampling.native_chain import NativeChain
from shared.sampling.parameters import SamplingParameters
from shared.sampling.penalties import penalties
from shared.sampling.top_k import top_k

_COLDEST = 1e-6
"""Lowest temperature used: noise has no effect below it, but logits would overflow."""

_SLACK = 1e-4
"""Larger than the difference between two implementations of a 32-bit logarithm."""


class CommonFilters:
    """The common filters of one sequence, in llama-server's default order; a `Filters`.

    For parameters with `is_common`; `shared.sampling.ordered_filters` takes all.

    The order is bias, penalties, top-k, typical-p, top-p, min-p, temperature. Of equal logits top-k keeps
    those with the lowest ids: llama.cpp's sort is unstable, but lead and backs must agree.
    """

    def __init__(self, parameters: SamplingParameters, n_vocab: int, end_tokens: frozenset[int]) -> None:
        self._n_vocab = n_vocab
        bias = parameters.biases(n_vocab, end_tokens)
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
        """(ids, logits) of the remaining candidates, in any order; valid until the next call.

        If all tokens remain, the ids are `every_token` itself.
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
        """Record a token, for penalties."""
        if self._adjustment:
            self._adjustment.accept(token)

    def reset(self) -> None:
        """Forget all tokens."""
        if self._adjustment:
            self._adjustment.reset()

    def _scaled(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return logits / self._temperature if self._scales else logits


class _Adjustment:
    """Bias and penalties, which change only the logits of biased tokens and of those in the window."""

    def __init__(self, parameters: SamplingParameters, bias: dict[int, float], n_vocab: int) -> None:
        self._biased = np.fromiter(bias.keys(), np.int32, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))
        self._penalties = NativeChain([penalties(parameters, n_vocab)]) if parameters.penalizes else None
        self._window: deque[int] = deque(maxlen=parameters.penalties_window)
        self._adjusted = np.empty(0, np.float32)

    def apply(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """An adjusted copy, valid until the next call."""
        if len(self._adjusted) != len(logits):
            self._adjusted = np.empty_like(logits)
        adjusted = self._adjusted
        np.copyto(adjusted, logits)
        if len(self._biased):
            adjusted[self._biased] += self._bias
        if self._penalties and self._window:
            # A token that occurs twice is assigned the same new logit twice.
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


def _cut(parameters: SamplingParameters) -> np.float32 | None:
    """Offset from the largest logit below which min-p certainly removes a token; None: no such offset.

    None if min-p is off, or if typical-p may remove the most likely token first. llama.cpp removes tokens
    below the 32-bit sum of the largest logit and ln(min_p). Rounding preserves the order of sums, so an
    offset below ln(min_p) never gives a larger sum.
    """
    min_p = float(np.float32(parameters.min_p))
    if min_p <= 0 or parameters.typical_p < 1:
        return None
    return np.float32(math.log(min_p) - _SLACK)


def _samplers(parameters: SamplingParameters) -> list[Any]:
    """The samplers after top-k."""
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
