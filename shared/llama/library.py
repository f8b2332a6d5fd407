"""Loads and initializes the native library, once per process, and sends its log to ours.

The code that computes on the CPU (the kernel) may be compiled for one kind of CPU. With GGML_CPU_ALL_VARIANTS
there is a library for each of many kinds, and the best library for this CPU is loaded.
"""

import ctypes
import functools
import importlib.metadata
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import LibraryError, MissingFunctionError
from shared.llama.native import FOLDER, llama_cpp
from shared.llama.unbound import add_library, function

log = logging.getLogger("llama")

# ggml_log_level: 1 debug, 2 info, 3 warn, 4 error, 5 continuation of the line before.
_DEBUG, _ERROR = 1, 4
_LEVELS = {_DEBUG: logging.DEBUG, 2: logging.DEBUG, 3: logging.DEBUG, _ERROR: logging.ERROR}
_ABORTED = re.compile(r"graph_compute: .* error 1$|process_ubatch: .* status: 1$|llama_decode: .* ret = 2$")
"""Matches the errors that llama.cpp logs if a decode was stopped on purpose (GGML_STATUS_ABORTED)."""
_OF_A_DEVICE = re.compile(r" *Device \d+: ")
_CPU_LOADED = re.compile(r"load_backend: loaded CPU backend from (.*)")
_KERNEL = re.compile(r"ggml-cpu-(.+)\.\w+$")
_FEATURE = re.compile(r"(\w+) = 1")
_captures: list[list[str]] = []
_explained: list[list[str]] = []
"""The lists of errors of nested `explained_errors` contexts, the innermost last."""
about_devices: list[str] = []
"""The messages of backends about their devices, which backends write only once."""


def _forward(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    message = text.decode("utf-8", "replace").rstrip()
    if _explained and level == _ERROR:
        _explained[-1].append(message)
        level = _DEBUG
    for lines in _captures:
        lines.append(message)
    if _OF_A_DEVICE.match(message):
        about_devices.append(message)
    if message and message != ".":
        log.log(
            logging.DEBUG if _ABORTED.match(message) else _LEVELS.get(level, logging.DEBUG), "%s", message
        )


# ctypes keeps no reference to a callback, so this module does.
LOG_CALLBACK = llama_cpp.llama_log_callback(_forward)


@functools.cache
def start() -> Path | None:
    """Initialize llama.cpp; further calls do nothing. Raises LibraryError if it has no code for this CPU.

    Returns the library of the chosen CPU kernel; None: there was no choice.
    """
    llama_cpp.llama_log_set(LOG_CALLBACK, ctypes.c_void_p(0))
    chosen = _load_kernels()
    llama_cpp.llama_backend_init()
    return chosen


def _load_kernels() -> Path | None:
    """Load the CPU kernels from llama.cpp's folder; llama_backend_init would search other folders."""
    try:
        if function("ggml_backend_reg_count")():
            return None
        with captured_log() as lines:
            function("ggml_backend_load_all_from_path")(os.fsencode(FOLDER))
    except MissingFunctionError:  # Windows: a library's handle does not find what that library needs itself
        return None
    paths = [Path(found[1]) for line in lines if (found := _CPU_LOADED.match(line))]
    if not paths:
        raise LibraryError(
            f"no CPU kernel in {FOLDER} runs on this CPU. Compile llama.cpp for this CPU (NATIVE=1 "
            "make setup, or pip install --no-binary llama-cpp-python llama-cpp-python)"
        )
    add_library(paths[-1])
    return paths[-1]


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """Yield a list that collects llama.cpp's messages within this context, because some facts are only in its
    log.
    """
    lines: list[str] = []
    _captures.append(lines)
    try:
        yield lines
    finally:
        _captures.remove(lines)


@contextmanager
def explained_errors() -> Iterator[list[str]]:
    """Yield a list that collects llama.cpp's errors within this context, for callers that report them in
    their own words. The errors are logged at level debug.
    """
    errors: list[str] = []
    _explained.append(errors)
    try:
        yield errors
    finally:
        _explained.pop()


def kernel() -> str:
    """Return the name of the CPU's kernel in llama.cpp, such as zen4; `compiled` if it is the only one."""
    chosen = start()
    found = _KERNEL.search(chosen.name) if chosen else None
    return found[1] if found else "compiled"


def describe_kernel() -> str:
    """Return the CPU's kernel, and the CPU instructions that it uses, for people."""
    start()
    of_cpu = re.search(r"CPU : ([^:]*)", llama_cpp.llama_print_system_info().decode())
    features = _FEATURE.findall(of_cpu[1] if of_cpu else "")
    return f"{kernel()} ({', '.join(features)})"


def build() -> str:
    """Return the build of llama.cpp, its CPU kernel and the instructions that it uses."""
    chosen = start()
    others = set(FOLDER.glob("*ggml-cpu-*")) - {chosen}
    files = sorted(set(FOLDER.glob("*")) - others)
    states = [f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return "\n".join([version(), kernel(), llama_cpp.llama_print_system_info().decode(), *states])


def version() -> str:
    """Return the versions of llama.cpp and llama-cpp-python."""
    return f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}"
