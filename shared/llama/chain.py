"""llama.cpp's sampler chain as filters: it narrows the candidates, it never chooses."""

import ctypes
import weakref
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.llama import library
from shared.llama.vocabulary import Vocabulary
from shared.sampling import BANNED, Sampler, SamplingParameters, needs_filters

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data

_COLDEST = 1e-6
"""Colder than this no noise can change the choice any more, but logits would overflow."""


class Chain:
    """The filters of one sequence, in llama-server's default order; a `shared.sampling.Filters`."""

    def __init__(self, parameters: SamplingParameters, n_vocab: int, end_tokens: frozenset[int]) -> None:
        library.start()
        self._chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        weakref.finalize(self, llama_cpp.llama_sampler_free, self._chain)
        for sampler in _samplers(parameters, n_vocab, end_tokens):
            llama_cpp.llama_sampler_chain_add(self._chain, sampler)
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._candidates = np.zeros(n_vocab, _CANDIDATE)
        self._array: Any = llama_cpp.llama_token_data_array()

    def apply(self, logits: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(ids, logits) of the candidates left, in no particular order; valid until the next call."""
        self._candidates["id"] = self._ids
        self._candidates["logit"] = logits
        array = self._array
        array.data = ctypes.cast(self._candidates.ctypes.data, llama_cpp.llama_token_data_p)
        array.size = len(self._ids)
        array.selected = -1
        array.sorted = False
        llama_cpp.llama_sampler_apply(self._chain, ctypes.byref(array))
        left = self._left(array)
        return left["id"], left["logit"]

    def accept(self, token: int) -> None:
        """Take note of a token, for the penalties."""
        llama_cpp.llama_sampler_accept(self._chain, token)

    def reset(self) -> None:
        """Forget all tokens."""
        llama_cpp.llama_sampler_reset(self._chain)

    def _left(self, array: Any) -> NDArray[Any]:
        # llama.h says of `data`: "this pointer can be modified by the samplers".
        address = ctypes.cast(array.data, ctypes.c_void_p).value
        if address == self._candidates.ctypes.data:
            return self._candidates[: array.size]
        buffer = (ctypes.c_byte * (array.size * _CANDIDATE.itemsize)).from_address(address or 0)
        return np.frombuffer(buffer, _CANDIDATE)


def make_sampler(parameters: SamplingParameters, vocabulary: Vocabulary, history: list[int]) -> Sampler:
    """The sampler of one sequence whose tokens so far are `history`."""
    filters = None
    if needs_filters(parameters):
        filters = Chain(parameters, vocabulary.n_tokens, vocabulary.end_tokens)
    return Sampler(parameters, filters, history)


def _samplers(parameters: SamplingParameters, n_vocab: int, end_tokens: frozenset[int]) -> list[Any]:
    """llama-server's order: bias, penalties, top-k, typical-p, top-p, min-p, temperature."""
    chosen: list[Any] = []
    bias = {token: value for token, value in parameters.logit_bias.items() if 0 <= token < n_vocab}
    if parameters.ignore_eos:
        bias |= dict.fromkeys(end_tokens, BANNED)
    if bias:
        pairs = [llama_cpp.llama_logit_bias(token, value) for token, value in bias.items()]
        native = (llama_cpp.llama_logit_bias * len(pairs))(*pairs)
        chosen.append(llama_cpp.llama_sampler_init_logit_bias(n_vocab, len(pairs), native))
    if parameters.penalizes:
        chosen.append(
            llama_cpp.llama_sampler_init_penalties(
                n_vocab,
                parameters.repeat_last_n,
                parameters.repeat_penalty,
                parameters.frequency_penalty,
                parameters.presence_penalty,
            )
        )
    if parameters.top_k > 0:
        chosen.append(llama_cpp.llama_sampler_init_top_k(parameters.top_k))
    if parameters.typical_p < 1:
        chosen.append(llama_cpp.llama_sampler_init_typical(parameters.typical_p, 1))
    if parameters.top_p < 1:
        chosen.append(llama_cpp.llama_sampler_init_top_p(parameters.top_p, 1))
    if parameters.min_p > 0:
        chosen.append(llama_cpp.llama_sampler_init_min_p(parameters.min_p, 1))
    if parameters.temperature > 0:
        chosen.append(llama_cpp.llama_sampler_init_temp(max(parameters.temperature, _COLDEST)))
    return chosen
