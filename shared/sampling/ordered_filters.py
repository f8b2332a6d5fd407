"""All of llama-server's samplers as filters, in any order; slower than `shared.sampling.common_filters`.

Random samplers (XTC) use the shared noise, so that lead and backs make the same choice.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.llama.vocabulary import Vocabulary
from shared.sampling.coupled_choice import every_token
from shared.sampling.native_chain import NativeChain
from shared.sampling.noise import uniform
from shared.sampling.parameters import SamplerName, SamplingParameters
from shared.sampling.penalties import dry, penalties
from shared.sampling.top_k import top_k

Candidates = tuple[NDArray[np.int32], NDArray[np.float32]]
Stage = Callable[[NDArray[np.int32], NDArray[np.float32], int], Candidates]

_COLDEST = 1e-6
"""Lowest temperature used: noise has no effect below it, but logits would overflow."""
_LARGEST = np.float32(1e30)
"""Logits are clipped to this: penalties grow exponentially, and an infinity would turn into a NaN."""
_MANY = 1000
"""From this many tokens on, sorting takes longer than scanning."""


class OrderedFilters:
    """The filters of one sequence; a `Filters`.

    Of equal logits, top-k and XTC rank those with the lowest ids first.
    """

    def __init__(
        self,
        parameters: SamplingParameters,
        n_vocab: int,
        end_tokens: frozenset[int],
        vocabulary: Vocabulary | None,
    ) -> None:
        """vocabulary: for DRY's sequence breakers; None: no breakers."""
        self._parameters = parameters
        self._n_vocab = n_vocab
        bias = parameters.biases(n_vocab, end_tokens)
        self._biased = np.fromiter(bias.keys(), np.int32, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))
        self._recent: list[_OnRecent] = []
        self._vocabulary = vocabulary
        self._stages = [self._stage(name) for name in parameters.active_samplers]

    def apply(
        self, logits: NDArray[np.float32], position: int, among: NDArray[np.int32] | None = None
    ) -> Candidates:
        """(ids, logits) of the remaining candidates of `among`, or of all tokens; at least one."""
        if len(self._biased):
            logits = logits.copy()
            logits[self._biased] += self._bias
        ids = every_token(self._n_vocab)
        if among is not None:
            ids, logits = among, logits[among]
        for stage in self._stages:
            if len(ids) == 1:
                break
            ids, logits = stage(ids, logits, position)
        return ids, logits

    def accept(self, token: int) -> None:
        """Record a token, for penalties."""
        for recent in self._recent:
            recent.accept(token)

    def reset(self) -> None:
        """Forget all tokens."""
        for recent in self._recent:
            recent.reset()

    def _stage(self, name: SamplerName) -> Stage:
        given = self._parameters
        make: dict[SamplerName, Callable[[], Stage]] = {
            "penalties": lambda: self._remembering(penalties(given, self._n_vocab), given.penalties_window),
            "dry": lambda: self._remembering(dry(given, self._vocabulary), given.dry_window),
            "top_n_sigma": lambda: self._top_n_sigma,
            "top_k": lambda: self._top_k,
            "typ_p": lambda: _native(llama_cpp.llama_sampler_init_typical(given.typical_p, 1)),
            "top_p": lambda: _native(llama_cpp.llama_sampler_init_top_p(given.top_p, 1)),
            "min_p": lambda: _native(llama_cpp.llama_sampler_init_min_p(given.min_p, 1)),
            "xtc": lambda: self._xtc,
            "temperature": self._temperature,
        }
        return make[name]()

    def _remembering(self, sampler: Any, n: int) -> Stage:
        recent = _OnRecent(sampler, n)
        self._recent.append(recent)
        return recent.apply

    def _temperature(self) -> Stage:
        given = self._parameters
        if given.temperature == 0:
            return lambda ids, logits, _: (ids, logits)
        if given.dynatemp_range > 0:
            scale = _native(
                llama_cpp.llama_sampler_init_temp_ext(
                    max(given.temperature, _COLDEST), given.dynatemp_range, given.dynatemp_exponent
                )
            )
            return lambda ids, logits, position: _finite(*scale(ids, logits, position))
        divisor = np.float32(max(given.temperature, _COLDEST))
        return lambda ids, logits, _: (ids, logits / divisor)

    def _top_k(self, ids: NDArray[np.int32], logits: NDArray[np.float32], _position: int) -> Candidates:
        if ids is every_token(self._n_vocab) or (len(ids) > _MANY and (ids[1:] > ids[:-1]).all()):
            top = top_k(logits, self._parameters.top_k)  # of equal ones the first, so the lowest id
        else:
            top = np.lexsort((ids, -logits))[: self._parameters.top_k]
        return ids[top], logits[top]

    def _top_n_sigma(self, ids: NDArray[np.int32], logits: NDArray[np.float32], _position: int) -> Candidates:
        """Keep logits within `top_n_sigma` standard deviations of the largest (arXiv 2411.07641)."""
        deviation = float(logits.std(dtype=np.float64))
        near = logits >= float(logits.max()) - self._parameters.top_n_sigma * deviation
        return ids[near], logits[near]

    def _xtc(self, ids: NDArray[np.int32], logits: NDArray[np.float32], position: int) -> Candidates:
        """Exclude top choices: with `xtc_probability`, all that reach the threshold but the least likely."""
        if uniform(self._parameters.seed, position) > self._parameters.xtc_probability:
            return ids, logits
        weights = np.exp(logits.astype(np.float64) - float(logits.max()))
        n_reaching = int((weights >= self._parameters.xtc_threshold * weights.sum()).sum())
        if n_reaching < 2:  # noqa: PLR2004 - a single one is kept
            return ids, logits
        left = np.lexsort((ids, -logits))[n_reaching - 1 :]
        return ids[left], logits[left]


class _OnRecent:
    """One of llama.cpp's penalties, applied only to the tokens that occur among the last `n`."""

    def __init__(self, sampler: Any, n: int) -> None:
        self._chain = NativeChain([sampler])
        self._window: deque[int] = deque(maxlen=n)

    def apply(self, ids: NDArray[np.int32], logits: NDArray[np.float32], _position: int) -> Candidates:
        recent = np.unique(np.fromiter(self._window, np.int32, len(self._window)))
        at = np.isin(ids, recent).nonzero()[0]
        if not len(at):
            return ids, logits
        _, penalized = self._chain.apply(ids[at], logits[at], are_sorted=False)
        logits = logits.copy()
        logits[at] = np.maximum(penalized, -_LARGEST)
        return ids, logits

    def accept(self, token: int) -> None:
        self._window.append(token)
        self._chain.accept(token)

    def reset(self) -> None:
        self._window.clear()
        self._chain.reset()


def _finite(ids: NDArray[np.int32], logits: NDArray[np.float32]) -> Candidates:
    return ids, np.clip(logits, -_LARGEST, _LARGEST)


def _native(sampler: Any) -> Stage:
    chain = NativeChain([sampler])
    return lambda ids, logits, _: chain.apply(ids, logits, are_sorted=False)
