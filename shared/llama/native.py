"""llama.cpp's functions: `from shared.llama.native import llama_cpp`.

The package llama_cpp imports its high-level classes, too, which nothing here uses, and with them numpy,
jinja2 and a database: .15 s and 13 MB in each process. So its `__init__` is not run.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["llama_cpp", "llama_cpp_ext"]

if TYPE_CHECKING:
    import llama_cpp
    from llama_cpp import llama_cpp_ext


def _without_classes(name: str) -> ModuleType:
    """A package in which only the submodule of the same name has been imported."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(name)
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    try:
        functions = importlib.import_module(f"{name}.{name}")
    except BaseException:
        del sys.modules[name]
        raise
    vars(package).update((key, value) for key, value in vars(functions).items() if key[0] != "_")
    return package


if not TYPE_CHECKING:
    llama_cpp = sys.modules.get("llama_cpp") or _without_classes("llama_cpp")
    llama_cpp_ext = importlib.import_module("llama_cpp.llama_cpp_ext")
