"""llama.cpp's functions: `from shared.llama.native import llama_cpp`.

The package llama_cpp also imports its high-level classes, which are not used here, and with them numpy,
jinja2 and a database: .15 s and 13 MB in each process. Therefore its `__init__` is not run.

The package looks up all functions when it is imported. Another build in LLAMA_CPP_LIB_PATH may lack some.
Here, a missing function raises only when it is called, because most functions are never called.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shared.errors import LibraryError, MissingFunctionError
from shared.llama.structures import check_structures

__all__ = ["FOLDER", "llama_cpp", "llama_cpp_ext"]

if TYPE_CHECKING:
    import llama_cpp
    from llama_cpp import llama_cpp_ext

_PACKAGE = "llama_cpp"


def _without_classes() -> ModuleType:
    """Return the package with only its submodule of the same name imported; raises LibraryError."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None:
        raise LibraryError("llama-cpp-python is not installed: pip install llama-cpp-python")
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    try:
        _allow_missing(importlib.import_module(f"{_PACKAGE}._ctypes_extensions"))
        functions = importlib.import_module(f"{_PACKAGE}.{_PACKAGE}")
    except (RuntimeError, OSError) as error:  # it is not there, or the system cannot load it
        del sys.modules[_PACKAGE]
        raise LibraryError(f"llama.cpp cannot be loaded: {error}") from error
    except BaseException:
        del sys.modules[_PACKAGE]
        raise
    vars(package).update((key, value) for key, value in vars(functions).items() if key[0] != "_")
    return package


def _allow_missing(extensions: ModuleType) -> None:
    bind_all = extensions.ctypes_function_for_shared_library

    def tolerant(library: Any) -> Callable[..., Any]:
        bind = bind_all(library)

        def bind_one(name: str, *signature: Any, **options: Any) -> Any:
            if hasattr(library, name):
                return bind(name, *signature, **options)
            return lambda _: _raising(name, library._name)  # noqa: SLF001 - ctypes has no other name for it

        return bind_one

    extensions.ctypes_function_for_shared_library = tolerant  # type: ignore[attr-defined]  # a module


def _raising(name: str, library: str) -> Callable[..., Any]:
    def missing(*_: Any) -> Any:
        raise MissingFunctionError(name, library)

    return missing


class _NoExtensions:
    """Replaces llama_cpp_ext if the library lacks one of the few functions in it, which draft heads need."""

    def __getattr__(self, name: str) -> Any:
        raise MissingFunctionError(name, str(FOLDER))


if not TYPE_CHECKING:
    llama_cpp = sys.modules.get(_PACKAGE) or _without_classes()
    check_structures(llama_cpp.llama_cpp)

FOLDER = Path(llama_cpp.llama_cpp._lib._name).parent  # noqa: SLF001 - as above
"""The folder of llama.cpp's libraries."""

if not TYPE_CHECKING:
    try:
        llama_cpp_ext = importlib.import_module("llama_cpp.llama_cpp_ext")
    except AttributeError:
        llama_cpp_ext = _NoExtensions()
