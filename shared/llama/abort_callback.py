"""Lets another thread watch a `llama_decode` that has not returned, and stop it.

llama.cpp asks its abort callback before each operation of a graph on the CPU: thousands of times in a step. A
Python callback would cost some per cent of the step, and a lock that another thread may hold. So functions of
libc are the callback, which cost nanoseconds; what they return means "abort" unless it is 0.
"""

import ctypes
import sys
from typing import Any

from shared.llama.native import llama_cpp

_FLAG_BYTES = 1024
"""sigset_t has 128 bytes in glibc and musl, 4 in macOS."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)


def _set_callback(context: Any, function: Any, data: ctypes.Array[ctypes.c_char]) -> None:
    callback = ctypes.cast(function, llama_cpp.ggml_abort_callback)
    llama_cpp.llama_set_abort_callback(context, callback, ctypes.cast(data, ctypes.c_void_p))


class StepProgress:
    """Watches one llama_context, which must not decode any more when this object is gone.

    sigemptyset writes zeros to the address that it is given, and returns 0. So each operation lowers a flag,
    and whoever wants to know raises it again. Windows has no such function, and no lead.
    """

    def __init__(self, context: Any) -> None:
        self._flag = ctypes.create_string_buffer(_FLAG_BYTES)
        _set_callback(context, _libc().sigemptyset, self._flag)

    def has_proceeded(self) -> bool:
        """True if the CPU has begun an operation of a graph since the last call; for any thread."""
        has = self._flag[0] == b"\0"
        self._flag[0] = b"\1"
        return has


class ContextInterrupt:
    """Stops the decodes of one llama_context, which must not decode any more when this object is gone.

    strlen of the text that it is given is 0 until `set` puts a character there.
    """

    def __init__(self, context: Any) -> None:
        self._text = ctypes.create_string_buffer(2)
        _set_callback(context, _libc().strlen, self._text)

    def set(self) -> None:
        """The decode under way, and each one until `clear`, is aborted; for any thread."""
        self._text[0] = b"\1"

    def clear(self) -> None:
        """Decodes run to their ends again."""
        self._text[0] = b"\0"
