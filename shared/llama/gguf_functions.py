"""The functions of gguf.h, which the library exports, but llama_cpp does not bind."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llama_cpp


class InitParameters(ctypes.Structure):
    """`gguf_init_params`."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    "gguf_init_from_file": ([ctypes.c_char_p, InitParameters], ctypes.c_void_p),
    "gguf_init_empty": ([], ctypes.c_void_p),
    "gguf_set_kv": ([ctypes.c_void_p, ctypes.c_void_p], None),
    "gguf_write_to_file": ([ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool], ctypes.c_bool),
    "gguf_get_n_tensors": ([ctypes.c_void_p], ctypes.c_int64),
    "gguf_get_tensor_name": ([ctypes.c_void_p, ctypes.c_int64], ctypes.c_char_p),
    "gguf_free": ([ctypes.c_void_p], None),
}
"""Argument types and result of each."""


@functools.cache
def gguf_function(name: str) -> Callable[..., Any]:
    """A function by its name in gguf.h."""
    library = llama_cpp.llama_cpp._lib  # noqa: SLF001 - there is no public way to these symbols
    function: Callable[..., Any] = library[name]  # a new object: llama_cpp's own is not changed
    function.argtypes, function.restype = _SIGNATURES[name]  # type: ignore[attr-defined]  # of ctypes
    return function
