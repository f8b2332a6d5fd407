"""Sources of a target's hidden states. A source records the states from its creation on.

MTP heads read the states after the last layer, EAGLE-3 reads states between layers.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelLoadError
from shared.heads.hidden_states import HiddenStates
from shared.llama import unbound
from shared.llama.model import Model
from shared.llama.native import llama_cpp, llama_cpp_ext

ARCHITECTURES = frozenset(
    {
        *("bailingmoe3", "gemma4", "gpt-oss", "hunyuan-dense", "lfm2", "lfm2moe", "llama", "mimo2"),
        *("minimax-m2", "nanbeige", "nemotron_h", "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe"),
        *("qwen3moe", "qwen3next"),
    }
)
"""Architectures whose graphs expose the inputs of layers (`t_layer_inp` in src/models). With other
architectures, llama.cpp aborts the process.
"""


def target_layers(drafter: Any) -> list[int]:
    """Return the layers of the target that a drafter (a llama_model) reads; raises ModelLoadError."""
    ids = _function("llama_model_target_layer_ids")(drafter)
    return [int(ids[i]) for i in range(_function("llama_model_target_layer_ids_n")(drafter))]


class NextnStates(HiddenStates):
    """The hidden states of `target` that MTP heads read."""

    def __init__(self, target: Model) -> None:
        """Begin to record; all slots must be empty."""
        model, self._context = target.native
        super().__init__(target.n_slots, llama_cpp.llama_model_n_embd_out(model))
        llama_cpp_ext.llama_set_embeddings_nextn(self._context, True, False)
        target.attach(self)

    def read(self, n_tokens: int) -> NDArray[np.float32]:
        address = llama_cpp_ext.llama_get_embeddings_nextn(self._context)
        pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, shape=(n_tokens, len(self.nothing)))


class LayerInputs(HiddenStates):
    """The hidden states of `target` that EAGLE-3 drafters read: the inputs of some layers."""

    def __init__(self, target: Model, layers: Sequence[int]) -> None:
        """Begin to record; all slots must be empty. Raises ModelLoadError.

        The target must be of one of `ARCHITECTURES` and have these layers.
        """
        model, self._context = target.native
        self._layers, self._n_embd = layers, llama_cpp.llama_model_n_embd(model)
        super().__init__(target.n_slots, len(layers) * self._n_embd)
        for layer in layers:
            _function("llama_set_embeddings_layer_inp")(self._context, layer, True)
        target.attach(self)

    def read(self, n_tokens: int) -> NDArray[np.float32]:
        shape = (n_tokens, self._n_embd)
        inputs_of = _function("llama_get_embeddings_layer_inp")
        pointers = (inputs_of(self._context, layer) for layer in self._layers)
        floats = (ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)) for pointer in pointers)
        return np.concatenate([np.ctypeslib.as_array(each, shape=shape) for each in floats], axis=1)


def _function(name: str) -> Callable[..., Any]:
    try:
        return unbound.function(name)
    except AttributeError as error:
        reason = f"this build of llama.cpp does not export {name}, which EAGLE-3 drafts need"
        raise ModelLoadError(reason) from error
