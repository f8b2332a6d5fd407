"""Prepares a process for any program: standard streams, a home folder, the program's modules.

Imports almost nothing, because it is used before the imports that take a second.
"""

import gc
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

from shared.errors import LibraryError
from shared.terminal import sanitize

_STDERR = 2


def open_closed_streams() -> None:
    """Connect standard input, output and error to /dev/null where they are closed (`lead 2>&-`).

    Otherwise the next file or socket that is opened takes their place: native code and child processes would
    write messages into it, and uvloop would abort the process when closing it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:  # the lowest that is free
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(_STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def ensure_home() -> None:
    """Set $HOME to / if it is unset and the user is not in /etc/passwd, as in a container.

    The programs can run without storing anything there, but not without a path.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


def run_program(name: str) -> None:
    """Import a module and call its `main`; if llama.cpp cannot be loaded, print a message and exit with
    status 1.
    """
    try:
        import_program(name).main()
    except LibraryError as error:
        sys.exit(sanitize(str(error)))


def import_program(name: str) -> ModuleType:
    """Import a module with garbage collection off, which saves a seventh of the time.

    The objects that modules define are excluded from later collections, too.
    """
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
