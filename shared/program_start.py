"""The first needs of a program: its standard streams, a home folder, its own modules.

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
    write messages into it, and uvloop aborts the process when it closes it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:  # the lowest that is free
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(_STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def ensure_home() -> None:
    """Without $HOME and without an entry of the user in /etc/passwd, as in a container, the root is home.

    Nothing can be stored there, which the programs do without; that there is no name for it they cannot.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


def run_program(name: str) -> None:
    """Import a module and call its `main`; without a llama.cpp to run it with, a sentence and status 1."""
    try:
        import_program(name).main()
    except LibraryError as error:
        sys.exit(sanitize(str(error)))


def import_program(name: str) -> ModuleType:
    """Import a module without looking for garbage meanwhile, which takes a seventh of the time.

    What modules define stays: it is not searched for garbage later, either.
    """
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
