"""Functions that llama.cpp's libraries export and llama_cpp does not bind, with bindings made by hand."""

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.errors import MissingFunctionError
from shared.llama.native import FOLDER, llama_cpp

_libraries: list[Any] = [llama_cpp.llama_cpp._lib]  # noqa: SLF001 - its handle also finds what is in libggml, which it needs


class GgufInitParameters(ctypes.Structure):
    """The structure `gguf_init_params`."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


class ComputePlan(ctypes.Structure):
    """The structure `ggml_cplan`."""

    _fields_ = (
        ("work_size", ctypes.c_size_t),
        ("work_data", ctypes.c_void_p),
        ("n_threads", ctypes.c_int),
        ("threadpool", ctypes.c_void_p),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        ("use_ref", ctypes.c_bool),
    )


class DeviceProperties(ctypes.Structure):
    """The structure `ggml_backend_dev_props`; the structure of flags at its end is given as bytes."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("flags", ctypes.c_bool * 8),
    )


class TensorOverride(ctypes.Structure):
    """The structure `llama_model_tensor_buft_override`."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


class GgmlInitParameters(ctypes.Structure):
    """The structure `ggml_init_params`."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


_POINTER, _TEXT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_INT, _BOOL, _UINT32 = ctypes.c_int, ctypes.c_bool, ctypes.c_uint32

_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    # gguf.h
    "gguf_init_from_file": ([_TEXT, GgufInitParameters], _POINTER),
    "gguf_init_empty": ([], _POINTER),
    "gguf_set_kv": ([_POINTER, _POINTER], None),
    "gguf_set_val_u32": ([_POINTER, _TEXT, _UINT32], None),
    "gguf_set_val_f32": ([_POINTER, _TEXT, ctypes.c_float], None),
    "gguf_set_val_str": ([_POINTER, _TEXT, _TEXT], None),
    "gguf_get_n_kv": ([_POINTER], ctypes.c_int64),
    "gguf_get_key": ([_POINTER, ctypes.c_int64], _TEXT),
    "gguf_get_kv_type": ([_POINTER, ctypes.c_int64], _INT),
    "gguf_get_val_u32": ([_POINTER, ctypes.c_int64], _UINT32),
    "gguf_write_to_file": ([_POINTER, _TEXT, _BOOL], _BOOL),
    "gguf_get_n_tensors": ([_POINTER], ctypes.c_int64),
    "gguf_get_tensor_name": ([_POINTER, ctypes.c_int64], _TEXT),
    "gguf_get_tensor_size": ([_POINTER, ctypes.c_int64], _SIZE),
    "gguf_get_tensor_type": ([_POINTER, ctypes.c_int64], ctypes.c_int),
    "gguf_free": ([_POINTER], None),
    # ggml-backend.h
    "ggml_backend_dev_count": ([], _SIZE),
    "ggml_backend_dev_get": ([_SIZE], _POINTER),
    "ggml_backend_dev_name": ([_POINTER], _TEXT),
    "ggml_backend_dev_type": ([_POINTER], _INT),
    "ggml_backend_dev_get_props": ([_POINTER, ctypes.POINTER(DeviceProperties)], None),
    "ggml_backend_dev_buffer_type": ([_POINTER], _POINTER),
    "ggml_backend_dev_supports_op": ([_POINTER, _POINTER], _BOOL),
    "ggml_backend_dev_host_buffer_type": ([_POINTER], _POINTER),
    "ggml_backend_buft_name": ([_POINTER], _TEXT),
    "ggml_backend_buft_alloc_buffer": ([_POINTER, _SIZE], _POINTER),
    "ggml_backend_buffer_get_base": ([_POINTER], _POINTER),
    "ggml_backend_buffer_free": ([_POINTER], None),
    "ggml_backend_dev_backend_reg": ([_POINTER], _POINTER),
    "ggml_backend_reg_name": ([_POINTER], _TEXT),
    "ggml_backend_reg_by_name": ([_TEXT], _POINTER),
    "ggml_backend_reg_get_proc_address": ([_POINTER, _TEXT], _POINTER),
    "ggml_backend_register": ([_POINTER], None),
    "ggml_backend_reg_count": ([], _SIZE),
    "ggml_backend_load_all_from_path": ([_TEXT], None),
    "ggml_backend_tensor_memset": ([_POINTER, ctypes.c_uint8, _SIZE, _SIZE], None),
    # ggml-cpu.h, ggml.h
    "ggml_nbytes": ([_POINTER], _SIZE),
    "ggml_init": ([GgmlInitParameters], _POINTER),
    "ggml_new_tensor_1d": ([_POINTER, _INT, ctypes.c_int64], _POINTER),
    "ggml_free": ([_POINTER], None),
    "ggml_graph_plan": ([_POINTER, _INT, _POINTER], ComputePlan),
    "ggml_graph_size": ([_POINTER], _INT),
    "ggml_graph_overhead_custom": ([_SIZE, _BOOL], _SIZE),
    "ggml_tensor_overhead": ([], _SIZE),
    # llama-ext.h
    "llama_graph_reserve": ([_POINTER, _UINT32, _UINT32, _UINT32], _POINTER),
    "llama_set_embeddings_layer_inp": ([_POINTER, _UINT32, _BOOL], None),
    "llama_get_embeddings_layer_inp": ([_POINTER, _UINT32], _POINTER),
    "llama_model_target_layer_ids": ([_POINTER], ctypes.POINTER(ctypes.c_int32)),
    "llama_model_target_layer_ids_n": ([_POINTER], _UINT32),
}
"""The argument types and the result type of each function."""

_MANGLED = {
    "llama_graph_reserve": (
        "_Z19llama_graph_reserveP13llama_contextjjj",
        "?llama_graph_reserve@@YAPEAUggml_cgraph@@PEAUllama_context@@III@Z",
    ),
    "llama_set_embeddings_layer_inp": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
    ),
    "llama_get_embeddings_layer_inp": (
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
    ),
    "llama_model_target_layer_ids": (
        "_Z28llama_model_target_layer_idsPK11llama_model",
        "?llama_model_target_layer_ids@@YAPEBHPEBUllama_model@@@Z",
    ),
    "llama_model_target_layer_ids_n": (
        "_Z30llama_model_target_layer_ids_nPK11llama_model",
        "?llama_model_target_layer_ids_n@@YAIPEBUllama_model@@@Z",
    ),
}
"""C++ names as GCC and Clang write them, and as MSVC does."""


def add_library(path: Path) -> None:
    """Let `function` search this library, too; the process has loaded it."""
    _libraries.append(ctypes.CDLL(str(path)))


if sys.platform == "win32":  # a library's handle does not find what that library needs itself, as elsewhere
    for _name in ("ggml-base.dll", "ggml.dll", "ggml-cpu.dll"):
        if (FOLDER / _name).exists():
            add_library(FOLDER / _name)


@functools.cache
def function(name: str) -> Callable[..., Any]:
    """Return a function by its name in C; raises MissingFunctionError if this build does not export it."""
    symbols = itertools.product(_libraries, _MANGLED.get(name, (name,)))
    library, symbol = next(
        ((each, symbol) for each, symbol in symbols if hasattr(each, symbol)), (None, name)
    )
    if library is None:
        raise MissingFunctionError(name, _libraries[0]._name)  # noqa: SLF001 - ctypes has no other name for it
    found: Callable[..., Any] = library[symbol]  # a new object: llama_cpp's own is not changed
    found.argtypes, found.restype = _SIGNATURES[name]  # type: ignore[attr-defined]  # of ctypes
    return found
