"""Ctrl-C before a program handles it: the program ends at once, without a traceback.

Imports almost nothing, because it is used before the imports that take a second. There, Python would print a
traceback at best; an import in C, or in another thread, may even swallow Ctrl-C.
"""

import signal
import sys
from types import TracebackType

STATUS = 130
"""128 + SIGINT, as in shells."""


class QuietInterrupts:
    """Within this context Ctrl-C has the system's default effect, until the program installs a handler.

    A process that ignores Ctrl-C, as one that a script has started with `&`, continues to ignore it.
    """

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        # An event loop that handled it has restored Python's handler.
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            sys.exit(STATUS)
