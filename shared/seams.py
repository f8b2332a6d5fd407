"""Rings: optional parts around the core, each in its own folder.

The core imports no ring. It names seams; a ring plugs in at a seam by having a module of that name. So a ring
is removed by deleting its folder and its line in the program's list.
"""

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

from shared.program_start import import_program


def plugged(rings: Iterable[str], seam: str) -> Iterator[ModuleType]:
    """Yield the modules called `seam` of the packages in `rings` that have such a module, in their order.

    A module is imported when it is reached.
    """
    for ring in rings:
        name = f"{ring}.{seam}"
        if importlib.util.find_spec(name):
            yield sys.modules.get(name) or import_program(name)
