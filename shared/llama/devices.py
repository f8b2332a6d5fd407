"""The devices that llama.cpp can compute on in this process: CPU, GPUs, and those of RPC workers."""

import ctypes
import os
from typing import Any

import llama_cpp

from shared.llama import library
from shared.llama.unbound import function
from shared.sandbox import NO_GPU

_GPU, _INTEGRATED_GPU = 1, 2
"""ggml_backend_dev_type."""


def names() -> list[str]:
    """CPU, CUDA0, …: in llama.cpp's order."""
    library.start()
    return [function("ggml_backend_dev_name")(device).decode() for device in pointers()]


def descriptions() -> list[str]:
    """Name and model of each, which tell whether two processes compute on the same devices."""
    try:
        describe = function("ggml_backend_dev_description")
        return [f"{name}: {describe(it).decode()}" for name, it in zip(names(), pointers(), strict=True)]
    except AttributeError:  # as in `has_gpu`
        return ["GPU"] if has_gpu() else []


def hide_gpus() -> None:
    """Have llama.cpp find no GPU in this process; its children will. Call this before anything else here."""
    before = {name: os.environ.get(name) for name in NO_GPU}
    os.environ.update(NO_GPU)
    try:
        names()  # llama.cpp opens the drivers when it is first asked for its devices
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


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
    return [function("ggml_backend_dev_get")(i) for i in range(function("ggml_backend_dev_count")())]


def _is_own_gpu(device: int) -> bool:
    registry = function("ggml_backend_dev_backend_reg")(device)
    is_gpu = function("ggml_backend_dev_type")(device) in {_GPU, _INTEGRATED_GPU}
    return is_gpu and function("ggml_backend_reg_name")(registry) != b"RPC"
