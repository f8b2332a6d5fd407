"""The output of `--version` after the version: libraries, llama.cpp's CPU kernel and the devices."""

import importlib.metadata
import platform
from collections.abc import Iterator

from shared.errors import LibraryError

_LIBRARIES = ("llama-cpp-python", "llguidance", "numpy", "pydantic", "uvicorn", "uvloop", "websockets")


def installation() -> Iterator[str]:
    """Yield the lines. For a part that is broken, the line is its error, because bug reports need it most."""
    yield f"Python {platform.python_version()}, {platform.platform()}"
    yield ", ".join(filter(None, map(_version, _LIBRARIES)))
    try:
        from shared.llama import devices, library  # noqa: PLC0415 - it may not load

        yield f"CPU kernel {library.describe_kernel()}"
        yield from (f"device {each}" for each in devices.descriptions())
    except LibraryError as error:
        yield str(error)


def _version(library: str) -> str | None:
    try:
        return f"{library} {importlib.metadata.version(library)}"
    except importlib.metadata.PackageNotFoundError:
        return None
