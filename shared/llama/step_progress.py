"""Whether a `llama_decode` that has not returned is computing, or hangs.

llama.cpp asks its abort callback before each operation of a graph on the CPU: thousands of times in a step. A
Python callback would cost some per cent of the step, and a lock that another thread may hold. libc's
sigemptyset costs nanoseconds: it writes zeros to the address that it is given and returns 0, "do not abort".
So each operation lowers a flag, and whoever wants to know raises it again.
"""

import ctypes
from typing import Any

from shared.llama.native import llama_cpp

_FLAG_BYTES = 1024
"""sigset_t has 128 bytes in glibc and musl, 4 in macOS."""


class StepProgress:
    """Watches one llama_context, which must not decode any more when this object is gone."""

    def __init__(self, context: Any) -> None:
        self._flag = ctypes.create_string_buffer(_FLAG_BYTES)
        callback = ctypes.cast(ctypes.CDLL(None).sigemptyset, llama_cpp.ggml_abort_callback)
        llama_cpp.llama_set_abort_callback(context, callback, ctypes.cast(self._flag, ctypes.c_void_p))

    def has_proceeded(self) -> bool:
        """Whether the CPU has begun an operation of a graph since the last call; for any thread."""
        has = self._flag[0] == b"\0"
        self._flag[0] = b"\1"
        return has
