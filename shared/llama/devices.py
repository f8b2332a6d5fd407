"""The devices that llama.cpp can compute on in this process: CPU, GPUs, and those of RPC workers.

llama-cpp-python has no functions for them, so they are called by their names in ggml-backend.h.
"""

import ctypes
from typing import Any

import llama_cpp

from shared.llama import library

_GPU, _INTEGRATED_GPU = 1, 2
"""ggml_backend_dev_type."""
_native: Any = llama_cpp.llama_cpp._lib  # noqa: SLF001 - its handle also finds what is in libggml, which it needs


def names() -> list[str]:
    """CPU, CUDA0, …: in llama.cpp's order."""
    library.start()
    return [_name(device) for device in pointers()]


def has_gpu() -> bool:
    """Whether this machine has a GPU that llama.cpp can use; one behind RPC does not count."""
    library.start()
    try:
        return any(_is_own_gpu(device) for device in pointers())
    except AttributeError:  # Windows: a library's handle does not find what that library needs itself
        return bool(llama_cpp.llama_supports_gpu_offload())


def own_gpus() -> Any:
    """For llama_model_params.devices: this machine's GPUs, a NULL-terminated array; none: only the CPU."""
    found = [device for device in pointers() if _is_own_gpu(device)]
    return (ctypes.c_void_p * (len(found) + 1))(*found, None)


def pointers() -> list[int]:
    """Each a ggml_backend_dev_t."""
    n_devices = call("ggml_backend_dev_count", ctypes.c_size_t)
    return [call("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t(i)) for i in range(n_devices)]


def call(function: str, result: Any, *arguments: Any) -> Any:
    """A function of ggml, whose result has this ctypes type."""
    found = getattr(_native, function)
    found.restype = result
    return found(*arguments)


def _is_own_gpu(device: int) -> bool:
    pointer = ctypes.c_void_p(device)
    registry = ctypes.c_void_p(call("ggml_backend_dev_backend_reg", ctypes.c_void_p, pointer))
    is_gpu = call("ggml_backend_dev_type", ctypes.c_int, pointer) in {_GPU, _INTEGRATED_GPU}
    return is_gpu and call("ggml_backend_reg_name", ctypes.c_char_p, registry) != b"RPC"


def _name(device: int) -> str:
    name: bytes = call("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p(device))
    return name.decode()
