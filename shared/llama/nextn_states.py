"""The hidden states of a context, which its model's heads for further tokens (MTP) read."""

import ctypes
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp_ext
from numpy.typing import NDArray


class NextnStates:
    """Of a llama_context, for every token of a decode."""

    def __init__(self, model: Any, context: Any) -> None:
        """`model` is the llama_model of the context."""
        self._context = context
        self.width: int = llama_cpp.llama_model_n_embd_out(model)
        """Numbers for each token."""
        llama_cpp_ext.llama_set_embeddings_nextn(context, True, False)

    def table(self, n_tokens: int) -> NDArray[np.float32]:
        """Of the last decode, which had `n_tokens` tokens; shape (n_tokens, width)."""
        address = llama_cpp_ext.llama_get_embeddings_nextn(self._context)
        pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, shape=(n_tokens, self.width))
