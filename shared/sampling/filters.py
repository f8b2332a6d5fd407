"""llama-server's samplers as filters, in any order: they remove candidates, and do not choose a token.

llama.cpp's own samplers decide, with llama.cpp's arithmetic. Before that, numpy removes tokens that cannot
affect the result. Random samplers (XTC) use the shared noise, so that lead and backs choose the same token.
"""

import ctypes
import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.llama.native import llama_cpp
from shared.llama.vocabulary import Vocabulary
from shared.sampling.native_chain import NativeChain
from shared.sampling.noise import uniform
from shared.sampling.parameters import SamplerName, SamplingParameters
from shared.sampling.sampler import every_token
from shared.sampling.top_k import top_k

Candidates = tuple[NDArray[np.int32], NDArray[np.float32]]
Stage = Callable[[NDArray[np.int32], NDArray[np.float32], int], Candidates]

_COLDEST = 1e-6
"""The lowest temperature that is used: noise has no effect below it, but logits would overflow."""
_LARGEST = np.float32(1e30)
"""The largest logit, to which larger logits are clipped: penalties grow exponentially, and an infinity would
turn into a NaN.
"""
_MANY = 1000
"""From this many tokens on, sorting takes longer than scanning."""
_SLACK = 1e-4
"""A margin larger than the difference between two implementations of a 32-bit logarithm."""
_TRUNCATING = {"typ_p", "top_p", "min_p"}
"""Samplers of llama.cpp that only remove candidates, by their probabilities."""
_KEEP_LIKELIEST = {"top_n_sigma", "top_k", "top_p", "min_p", "temperature"}
"""Filters that have no effect at the end of the chain at temperature 0, because they keep the likeliest
token.
"""


class NativeFilters:
    """The filters of one sequence, made of llama.cpp's samplers: a `shared.sampling.sampler.Filters`.

    Of equal logits, top-k and XTC rank the lowest ids first.
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
        self._top = parameters.top_k
        self._n_vocab = n_vocab
        self._all = every_token(n_vocab)
        self._biases = bias = parameters.biases(n_vocab, end_tokens)
        self._biased = np.fromiter(bias.keys(), np.int32, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))
        self._raises = bool((self._bias > 0).any())
        self._adjusted = np.empty(n_vocab if bias else 0, np.float32)  # new memory takes longer than the copy
        self._penalties: list[_Penalty] = []
        self._vocabulary = vocabulary
        self._stages = self._make_stages()

    def apply(
        self, logits: NDArray[np.float32], position: int, among: NDArray[np.int32] | None = None
    ) -> Candidates:
        if len(self._biased):
            self._adjusted[:] = logits
            logits = self._adjusted
            logits[self._biased] += self._bias
        ids = self._all
        if among is not None:
            ids, logits = among, logits[among]
        for stage in self._stages:
            if len(ids) == 1:
                break
            ids, logits = stage(ids, logits, position)
        return ids, logits

    def likeliest(self, logits: NDArray[np.float32]) -> int | None:
        if self._stages or self._raises:
            return None
        best = int(logits.argmax())
        return None if best in self._biases else best

    def accept(self, token: int) -> None:
        for penalty in self._penalties:
            penalty.accept(token)

    def reset(self) -> None:
        for penalty in self._penalties:
            penalty.reset()

    def _make_stages(self) -> list[Stage]:
        stages: list[Stage] = []
        samplers = list(self._parameters.active_samplers)
        while self._parameters.is_greedy and samplers and samplers[-1] in _KEEP_LIKELIEST:
            samplers.pop()
        for truncates, names in itertools.groupby(samplers, key=_TRUNCATING.__contains__):
            if truncates:
                are_sorted = stages[-1:] == [self._top_k]
                truncation = _Truncation(tuple(names), self._parameters, are_sorted=are_sorted)
                if are_sorted:  # if only the likeliest is left, no others are searched
                    stages[-1] = functools.partial(self._top_k, offset=truncation.offset)
                stages.append(truncation)
            else:
                stages += map(self._stage, names)
        return stages

    def _stage(self, name: SamplerName) -> Stage:
        given = self._parameters
        make: dict[SamplerName, Callable[[], Stage]] = {
            "penalties": lambda: self._penalty(_repetition(given, self._n_vocab), given.penalties_window),
            "dry": lambda: self._penalty(_dry(given, self._vocabulary), given.dry_window),
            "top_n_sigma": lambda: self._top_n_sigma,
            "top_k": lambda: self._top_k,
            "xtc": lambda: self._xtc,
            "temperature": lambda: _temperature(given),
        }
        return make[name]()

    def _penalty(self, sampler: Any, n: int) -> Stage:
        penalty = _Penalty(sampler, n)
        self._penalties.append(penalty)
        return penalty

    def _top_k(
        self,
        ids: NDArray[np.int32],
        logits: NDArray[np.float32],
        _position: int,
        offset: np.float32 | None = None,
    ) -> Candidates:
        if ids is self._all:
            top = top_k(logits, self._top, offset)  # of equal ones the first, so the lowest id
            return top.astype(np.int32), logits[top]
        if len(ids) > _MANY and (ids[1:] > ids[:-1]).all():
            top = top_k(logits, self._top)
        else:
            top = np.lexsort((ids, -logits))[: self._top]
        return ids[top], logits[top]

    def _top_n_sigma(self, ids: NDArray[np.int32], logits: NDArray[np.float32], _position: int) -> Candidates:
        """Keep logits within `top_n_sigma` standard deviations of the largest (arXiv 2411.07641)."""
        deviation = float(logits.std(dtype=np.float64))
        far = logits < float(logits.max()) - self._parameters.top_n_sigma * deviation
        return ids[~far], logits[~far]  # NaNs are not far

    def _xtc(self, ids: NDArray[np.int32], logits: NDArray[np.float32], position: int) -> Candidates:
        """With probability `xtc_probability`, remove all tokens that reach the threshold, except the least
        likely of them.
        """
        if uniform(self._parameters.seed, position) > self._parameters.xtc_probability:
            return ids, logits
        weights = np.exp(logits.astype(np.float64) - float(logits.max()))
        n_reaching = int((weights >= self._parameters.xtc_threshold * weights.sum()).sum())
        if n_reaching < 2:  # noqa: PLR2004 - a single one is kept
            return ids, logits
        left = np.lexsort((ids, -logits))[n_reaching - 1 :]
        return ids[left], logits[left]


class _Penalty:
    """A penalty of llama.cpp, applied only to the tokens that occur among the last `n`."""

    def __init__(self, sampler: Any, n: int) -> None:
        self._chain = NativeChain([sampler])
        self._window: deque[int] = deque(maxlen=n)

    def __call__(self, ids: NDArray[np.int32], logits: NDArray[np.float32], _position: int) -> Candidates:
        # A token that occurs twice is assigned the same logit twice.
        recent: NDArray[Any] = np.fromiter(self._window, np.int32, len(self._window))
        at = recent if ids is every_token(len(ids)) else np.isin(ids, recent).nonzero()[0]
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


class _Truncation:
    """A group of adjacent filters out of llama.cpp's typical-p, top-p and min-p.

    Most tokens are usually so far below the likeliest that min-p certainly removes them. If min-p comes
    first, these tokens are removed before llama.cpp sees them. If top-p comes first, it counts their
    probability, so they are removed only if just the likeliest token is left, which top-p never removes.
    """

    def __init__(
        self, names: Sequence[SamplerName], parameters: SamplingParameters, *, are_sorted: bool
    ) -> None:
        """are_sorted: candidates will be in descending order."""
        make: dict[SamplerName, Callable[[], Any]] = {
            "typ_p": lambda: llama_cpp.llama_sampler_init_typical(parameters.typical_p, 1),
            "top_p": lambda: llama_cpp.llama_sampler_init_top_p(parameters.top_p, 1),
            "min_p": lambda: llama_cpp.llama_sampler_init_min_p(parameters.min_p, 1),
        }
        self._chain = NativeChain([make[name]() for name in names])
        self._are_sorted = are_sorted
        self._begins_with_min_p = names[0] == "min_p"
        before_min_p = names[: names.index("min_p")] if "min_p" in names else ("typ_p",)
        self.offset = None if "typ_p" in before_min_p else _min_p_offset(parameters.min_p)

    def __call__(self, ids: NDArray[np.int32], logits: NDArray[np.float32], _position: int) -> Candidates:
        if self.offset is not None and self._are_sorted:
            if logits[1] < logits[0] + self.offset:
                return ids[:1], logits[:1]
        elif self.offset is not None:
            near = (logits >= logits.max() + self.offset).nonzero()[0]
            if len(near) == 1:
                return ids[near], logits[near]
            if self._begins_with_min_p and len(near):  # none: the logits are no numbers
                ids, logits = ids[near], logits[near]
        return self._chain.apply(ids, logits, are_sorted=self._are_sorted)


def _min_p_offset(min_p: float) -> np.float32 | None:
    """Return the offset from the largest logit below which min-p removes every token; None: no such offset.

    llama.cpp removes tokens below the 32-bit sum of the largest logit and ln(min_p). Rounding preserves the
    order of sums, so an offset below ln(min_p) never gives a larger sum.
    """
    rounded = float(np.float32(min_p))
    return np.float32(math.log(rounded) - _SLACK) if rounded > 0 else None


def _temperature(parameters: SamplingParameters) -> Stage:
    if parameters.temperature == 0:
        return lambda ids, logits, _: (ids, logits)
    temperature = max(parameters.temperature, _COLDEST)
    if parameters.dynatemp_range > 0:
        dynamic = NativeChain(
            [
                llama_cpp.llama_sampler_init_temp_ext(
                    temperature, parameters.dynatemp_range, parameters.dynatemp_exponent
                )
            ]
        )
        return lambda ids, logits, _: _finite(*dynamic.apply(ids, logits, are_sorted=False))
    if temperature == 1:
        return lambda ids, logits, _: (ids, logits)
    divisor = np.float32(temperature)
    return lambda ids, logits, _: (ids, logits / divisor)


def _finite(ids: NDArray[np.int32], logits: NDArray[np.float32]) -> Candidates:
    return ids, np.clip(logits, -_LARGEST, _LARGEST)


def _repetition(parameters: SamplingParameters, n_vocab: int) -> Any:
    """Return a llama_sampler for repetition, frequency and presence penalties; the caller owns it."""
    return llama_cpp.llama_sampler_init_penalties(
        n_vocab,
        parameters.penalties_window,
        parameters.repeat_penalty,
        parameters.frequency_penalty,
        parameters.presence_penalty,
    )


def _dry(parameters: SamplingParameters, vocabulary: Vocabulary | None) -> Any:
    """Return a llama_sampler that penalizes repeated sequences; the caller owns it."""
    prototype = _dry_prototype(
        vocabulary,
        parameters.dry_sequence_breakers if vocabulary else (),
        parameters.dry_window,
        (parameters.dry_multiplier, parameters.dry_base, parameters.dry_allowed_length),
    )
    return prototype.clone()


class _Prototype:
    """A sampler that is only cloned, because searching a large vocabulary for the breakers is slow."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._owner = NativeChain([sampler])

    def clone(self) -> Any:
        return llama_cpp.llama_sampler_clone(self._sampler)


@functools.lru_cache(maxsize=4)
def _dry_prototype(
    vocabulary: Vocabulary | None, breakers: tuple[str, ...], window: int, strength: tuple[float, float, int]
) -> _Prototype:
    """Return the prototype of llama.cpp's DRY sampler. strength: (multiplier, base, allowed length)."""
    encoded = [text.encode() for text in breakers]
    return _Prototype(
        llama_cpp.llama_sampler_init_dry(
            vocabulary.native if vocabulary else None,
            *strength,
            window,
            (ctypes.c_char_p * len(encoded))(*encoded),
            len(encoded),
        )
    )
