"""The native library: started once per process, its log sent to ours."""

import ctypes
import functools
import importlib.metadata
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.llama.native import llama_cpp

log = logging.getLogger("llama")

# ggml_log_level: 1 debug, 2 info, 3 warn, 4 error, 5 continuation of the line before.
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.DEBUG, 4: logging.ERROR}
_ABORTED = re.compile(r"graph_compute: .* error 1$|process_ubatch: .* status: 1$|llama_decode: .* ret = 2$")
"""Said with level 4 of a decode that was stopped on purpose (GGML_STATUS_ABORTED)."""
_OF_A_DEVICE = re.compile(r" *Device \d+: ")
_captures: list[list[str]] = []
about_devices: list[str] = []
"""What backends have said of their devices, which they do once."""


def _forward(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    message = text.decode("utf-8", "replace").rstrip()
    for lines in _captures:
        lines.append(message)
    if _OF_A_DEVICE.match(message):
        about_devices.append(message)
    if message and message != ".":
        log.log(
            logging.DEBUG if _ABORTED.match(message) else _LEVELS.get(level, logging.DEBUG), "%s", message
        )


# ctypes keeps no reference to a callback, so this module does.
_callback = llama_cpp.llama_log_callback(_forward)


@functools.cache
def start() -> None:
    """Initialise llama.cpp; further calls do nothing."""
    llama_cpp.llama_log_set(_callback, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """A list to which llama.cpp's messages are added: it says some things nowhere else."""
    lines: list[str] = []
    _captures.append(lines)
    try:
        yield lines
    finally:
        _captures.remove(lines)


def build() -> str:
    """Which build of llama.cpp this is, and which of the CPU's instructions it uses."""
    files = sorted((Path(llama_cpp.__file__).parent / "lib").glob("*"))
    states = [f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return "\n".join([version(), llama_cpp.llama_print_system_info().decode(), *states])


def version() -> str:
    """llama.cpp's own version and llama-cpp-python's."""
    return f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}"
