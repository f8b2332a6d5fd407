"""Lets another thread watch a running `llama_decode`, and stop it.

llama.cpp calls its abort callback before each operation of a graph on the CPU, thousands of times in a step.
A Python callback would take a few percent of the step, and need a lock that another thread may hold.
Therefore the callbacks are functions of libc, which take nanoseconds. If a callback returns anything but 0,
llama.cpp aborts the decode.
"""

import ctypes
import sys
from typing import Any

from shared.llama.native import llama_cpp

_FLAG_BYTES = 1024
"""The size of a flag: sigset_t has 128 bytes in glibc and musl, 4 in macOS."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)


def _set_callback(context: Any, function: Any, data: ctypes.Array[ctypes.c_char]) -> None:
    callback = ctypes.cast(function, llama_cpp.ggml_abort_callback)
    llama_cpp.llama_set_abort_callback(context, callback, ctypes.cast(data, ctypes.c_void_p))


class StepProgress:
    """Watches one llama_context, which must not decode after this object is deleted.

    The callback is sigemptyset, which writes zeros to its argument's address and returns 0. So each operation
    clears a flag, and `has_proceeded` sets it again. Windows has no such function, and cannot run a lead.
    """

    def __init__(self, context: Any) -> None:
        self._flag = ctypes.create_string_buffer(_FLAG_BYTES)
        _set_callback(context, _libc().sigemptyset, self._flag)

    def has_proceeded(self) -> bool:
        """Return whether the CPU has begun an operation since the last call. Any thread may call it."""
        has = self._flag[0] == b"\0"
        self._flag[0] = b"\1"
        return has


class ContextInterrupt:
    """Stops the decodes of one llama_context, which must not decode after this object is deleted.

    The callback is strlen. It returns 0, the length of an empty text, until `set` writes a character into the
    text.
    """

    def __init__(self, context: Any) -> None:
        self._text = ctypes.create_string_buffer(2)
        _set_callback(context, _libc().strlen, self._text)

    def set(self) -> None:
        """Abort the current decode, and later ones until `clear`. Any thread may call it."""
        self._text[0] = b"\1"

    def clear(self) -> None:
        """Let decodes run to their end again."""
        self._text[0] = b"\0"
