"""Standard input, output and error, which a program may have been started without (`lead 2>&-`).

Imports almost nothing, because it is used before the imports that take a second.
"""

import os
import sys

_STDERR = 2


def open_closed_streams() -> None:
    """Connect those that are closed to /dev/null.

    Otherwise the next file or socket that is opened takes their place: native code and child processes would
    write messages into it, and uvloop aborts the process when it closes it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:  # the lowest that is free
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(_STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
