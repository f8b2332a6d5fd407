"""Ctrl-C while nobody handles it: the program ends at once, and says nothing.

Imports next to nothing: it stands before the imports that take a second. What Python makes of Ctrl-C there is
a traceback at best; an import in C, or of another thread, may swallow it.
"""

import signal
import sys
from types import TracebackType

STATUS = 130
"""128 + SIGINT, as shells have it."""


class QuietInterrupts:
    """Within this context Ctrl-C has the system's own effect, until somebody handles it.

    A process that ignores Ctrl-C, as those that a script starts with `&`, goes on ignoring it.
    """

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        # An event loop that handled it leaves Python's handler behind.
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            sys.exit(STATUS)
