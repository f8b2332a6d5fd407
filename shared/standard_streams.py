"""Standard input, output and error: a program has all of them (`lead 2>&-`), and its children nothing else.

Imports almost nothing, because it is used before the imports that take a second.
"""

import contextlib
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


def keep_from_children() -> None:
    """Let no child process inherit what this one was given, but for the standard streams.

    uvloop closes nothing in the processes that it starts. A shell or the parent may have left a descriptor
    open here, and an engine that holds the socket on which its lead listens keeps the port after the lead's
    death.
    """
    with contextlib.suppress(OSError):  # without /dev/fd
        for name in os.listdir("/dev/fd"):  # noqa: PTH208 - names are enough
            if int(name) > _STDERR:
                with contextlib.suppress(OSError):  # the one of this look is closed by now
                    os.set_inheritable(int(name), False)
