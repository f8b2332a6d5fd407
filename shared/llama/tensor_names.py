"""The names of a GGUF file's tensors, without reading its weights."""

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp


class _InitParameters(ctypes.Structure):
    """`gguf_init_params` of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    "gguf_init_from_file": ([ctypes.c_char_p, _InitParameters], ctypes.c_void_p),
    "gguf_get_n_tensors": ([ctypes.c_void_p], ctypes.c_int64),
    "gguf_get_tensor_name": ([ctypes.c_void_p, ctypes.c_int64], ctypes.c_char_p),
    "gguf_free": ([ctypes.c_void_p], None),
}
"""Exported by the library, but not bound by llama_cpp: argument types and result of each."""


def tensor_names(path: Path) -> list[str]:
    """In the order of the file; empty if llama.cpp cannot read it. Of a split model, one part's."""
    file = _function("gguf_init_from_file")(os.fsencode(path), _InitParameters(True, None))
    if not file:
        return []
    name = _function("gguf_get_tensor_name")
    names = [name(file, i).decode("utf-8", "replace") for i in range(_function("gguf_get_n_tensors")(file))]
    _function("gguf_free")(file)
    return names


@functools.cache
def _function(name: str) -> Callable[..., Any]:
    library = llama_cpp.llama_cpp._lib  # noqa: SLF001 - there is no public way to these symbols
    function: Callable[..., Any] = library[name]  # a new object: llama_cpp's own is not changed
    function.argtypes, function.restype = _SIGNATURES[name]  # type: ignore[attr-defined]  # of ctypes
    return function
