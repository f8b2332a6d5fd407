"""Search paths of programs, modules and libraries, without the working directory.

The working directory may be a downloaded folder with a `queue.py` in it. An empty entry in a list of folders
means the working directory, too, as in `PYTHONPATH=$PYTHONPATH:/opt/tools` if PYTHONPATH was unset. This
module runs first, so it imports only modules that Python has already loaded at startup.
"""

import os
import sys
from _collections_abc import Mapping

_LISTS = ["PYTHONPATH"]
if sys.platform != "win32":  # where entries may be quoted
    _LISTS += ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"]
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib imports much
"""The folder that these packages are imported from."""


def without_working_directory(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a program that must not search the working directory: lists of folders keep
    only absolute entries.
    """
    kept = dict(environment) | {"PYTHONSAFEPATH": "1"}
    for name in _LISTS:
        if name in kept:
            kept[name] = os.pathsep.join(filter(os.path.isabs, kept[name].split(os.pathsep)))
            if not kept[name]:
                del kept[name]
    return kept


def leave_working_directory() -> None:
    """Stop this process and its children from importing modules or running programs from the working
    directory.

    Python may have imported modules from there before. A checkout that is not installed, and can be found
    nowhere else, stays on the path.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 - as above
    except OSError:
        return  # it is gone: nothing can be in it
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    absolute = list(filter(os.path.isabs, given))
    unwanted = {os.path.normpath(f"{here}{os.sep}{each}") for each in given if each not in absolute}
    if not sys.flags.safe_path and sys.path[:1] in ([""], [here]):  # `python -m`
        unwanted.add(sys.path[0])
    if _ROOT in unwanted:
        unwanted.remove(_ROOT)
        absolute.append(_ROOT)
        os.environ["PYTHONPATH"] = os.pathsep.join(absolute)
    sys.path[:] = [each for each in sys.path if each in absolute or each not in unwanted]
    environment = without_working_directory(os.environ)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)
