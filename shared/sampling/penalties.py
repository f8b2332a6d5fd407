"""llama.cpp's samplers that depend on previous tokens: penalties and DRY.

Each function returns a llama_sampler pointer that the caller owns.
"""

import ctypes
import functools
from typing import Any

import llama_cpp

from shared.llama.vocabulary import Vocabulary
from shared.sampling.native_chain import NativeChain
from shared.sampling.parameters import SamplingParameters


def penalties(parameters: SamplingParameters, n_vocab: int) -> Any:
    """Repetition, frequency and presence penalties."""
    return llama_cpp.llama_sampler_init_penalties(
        n_vocab,
        parameters.penalties_window,
        parameters.repeat_penalty,
        parameters.frequency_penalty,
        parameters.presence_penalty,
    )


def dry(parameters: SamplingParameters, vocabulary: Vocabulary | None) -> Any:
    """The penalty for repeated sequences; without a vocabulary there are no sequence breakers."""
    prototype = _dry_prototype(
        vocabulary,
        parameters.dry_sequence_breakers if vocabulary else (),
        parameters.dry_window,
        (parameters.dry_multiplier, parameters.dry_base, parameters.dry_allowed_length),
    )
    return prototype.clone()


class _Prototype:
    """A sampler that is only cloned: searching a large vocabulary for the breakers is slow."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._owner = NativeChain([sampler])

    def clone(self) -> Any:
        return llama_cpp.llama_sampler_clone(self._sampler)


@functools.lru_cache(maxsize=4)
def _dry_prototype(
    vocabulary: Vocabulary | None,
    breakers: tuple[str, ...],
    window: int,
    strength: tuple[float, float, int],
) -> _Prototype:
    """`strength`: multiplier, base, allowed length."""
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
