"""Importing a program faster.

Imports almost nothing itself, because it is used before the imports that take a second.
"""

import gc
import importlib
import sys
from types import ModuleType

from shared.errors import LibraryError
from shared.terminal import sanitize


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
