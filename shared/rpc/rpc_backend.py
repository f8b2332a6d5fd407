"""llama.cpp's RPC backend: layers of a model on other machines (`lead --rpc`), and serving as such a machine.

It exists only in builds of llama.cpp with RPC.
"""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared.errors import ConfigError, ModelLoadError
from shared.llama import devices, library
from shared.llama.native import llama_cpp
from shared.llama.unbound import function

HOW_TO_BUILD = "this llama.cpp was built without RPC. Build it with CMAKE_ARGS=-DGGML_RPC=ON make setup"


def is_available() -> bool:
    library.start()  # else llama.cpp looks for backends in the working directory
    return bool(llama_cpp.llama_supports_rpc())


def require() -> None:
    """Raise ConfigError with a remedy if llama.cpp was not built with RPC."""
    if not is_available():
        raise ConfigError(HOW_TO_BUILD)


def add_workers(addresses: Sequence[str]) -> None:
    """Make these workers (host:port) available to models of this process, in this order.

    llama.cpp ends the process if a worker does not answer, so probe them first (`shared.rpc.rpc_probe`).
    Raises ModelLoadError for a worker without devices.
    """
    library.start()
    # A worker that goes ends this process; llama.cpp would have a debugger print where, which takes seconds.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    add = _procedure(b"ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)
    for address in addresses:
        worker = add(address.encode())
        if not worker:
            raise ModelLoadError(f"RPC worker {address} has no device")
        if address not in devices.remote:
            function("ggml_backend_register")(worker)
            devices.remote.add(address)


def serve(address: str, offered: Sequence[int], n_threads: int, cache: Path | None) -> None:
    """Compute on these devices for one lead at a time; returns only if it cannot listen.

    address: IPv4, and a port. cache: a folder in which weights are kept for the next start of a lead.
    """
    start = _procedure(
        b"ggml_backend_rpc_start_server",
        *(None, ctypes.c_char_p, ctypes.c_char_p),
        *(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p),
    )
    folder = f"{cache}/".encode() if cache else None
    pointers = (ctypes.c_void_p * len(offered))(*offered)
    start(address.encode(), folder, n_threads, len(offered), ctypes.cast(pointers, ctypes.c_void_p))


def _procedure(name: bytes, result: Any, *arguments: Any) -> Any:
    backend = function("ggml_backend_reg_by_name")(b"RPC")
    found = function("ggml_backend_reg_get_proc_address")(backend, name)
    return ctypes.CFUNCTYPE(result, *arguments)(found)
