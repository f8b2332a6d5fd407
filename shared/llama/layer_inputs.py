"""The inputs of some of a target's layers, which EAGLE-3 drafters read.

The functions belong to llama.cpp's staging interface (llama-ext.h): the library exports them, llama_cpp does
not bind them.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelLoadError

ARCHITECTURES = frozenset(
    {
        *("bailingmoe3", "gemma4", "gpt-oss", "hunyuan-dense", "lfm2", "lfm2moe", "llama", "mimo2"),
        *("minimax-m2", "nanbeige", "nemotron_h", "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe"),
        *("qwen3moe", "qwen3next"),
    }
)
"""Whose graphs give them (`t_layer_inp` in src/models). In others llama.cpp aborts the process."""

_POINTER = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[tuple[str, ...], list[Any], Any]] = {
    "set": (
        (
            "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
            "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        ),
        [_POINTER, ctypes.c_uint32, ctypes.c_bool],
        None,
    ),
    "get": (
        (
            "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
            "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        ),
        [_POINTER, ctypes.c_uint32],
        _POINTER,
    ),
    "layers": (
        (
            "_Z28llama_model_target_layer_idsPK11llama_model",
            "?llama_model_target_layer_ids@@YAPEBHPEBUllama_model@@@Z",
        ),
        [_POINTER],
        ctypes.POINTER(ctypes.c_int32),
    ),
    "n_layers": (
        (
            "_Z30llama_model_target_layer_ids_nPK11llama_model",
            "?llama_model_target_layer_ids_n@@YAIPEBUllama_model@@@Z",
        ),
        [_POINTER],
        ctypes.c_uint32,
    ),
}
"""C++ names as GCC and Clang write them, and as MSVC does; argument types; result."""


def target_layers(drafter: Any) -> list[int]:
    """The layers of its target that a drafter (a llama_model) reads; raises ModelLoadError."""
    ids, n = _function("layers")(drafter), _function("n_layers")(drafter)
    return [int(ids[i]) for i in range(n)]


class LayerInputs:
    """The inputs of `layers` of a llama_context, for every token of a decode."""

    def __init__(self, context: Any, layers: Sequence[int], n_embd: int) -> None:
        """The model must be of one of `ARCHITECTURES`, and have these layers. Raises ModelLoadError."""
        self._context, self._layers, self._n_embd = context, layers, n_embd
        for layer in layers:
            _function("set")(context, layer, True)

    @property
    def width(self) -> int:
        """Numbers for each token."""
        return len(self._layers) * self._n_embd

    def table(self, n_tokens: int) -> NDArray[np.float32]:
        """Of the last decode, which had `n_tokens` tokens; shape (n_tokens, width)."""
        shape = (n_tokens, self._n_embd)
        pointers = (_function("get")(self._context, layer) for layer in self._layers)
        floats = (ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)) for pointer in pointers)
        return np.concatenate([np.ctypeslib.as_array(each, shape=shape) for each in floats], axis=1)


@functools.cache
def _function(name: str) -> Callable[..., Any]:
    library = llama_cpp.llama_cpp._lib  # noqa: SLF001 - there is no public way to these symbols
    symbols, arguments, result = _SIGNATURES[name]
    for symbol in symbols:
        try:
            function: Callable[..., Any] = library[symbol]  # a new object: llama_cpp's own is not changed
        except AttributeError:
            continue
        function.argtypes, function.restype = arguments, result  # type: ignore[attr-defined]  # of ctypes
        return function
    raise ModelLoadError(f"this build of llama.cpp does not export {symbols[0]}, which EAGLE-3 drafts need")
