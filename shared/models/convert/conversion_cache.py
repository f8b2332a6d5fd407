"""Converted models in the user's cache, beside the grown ones: each source is converted once."""

import hashlib
import shutil
import time
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from shared.errors import ConfigError, ModelLoadError
from shared.models.convert.conversion import Conversion
from shared.models.gguf_file import PART_SUFFIX, Progress

VERSION = 1
"""Raise this when the same source gives another file."""

_ABANDONED_SECONDS = 3600.0
"""A partial file that has not been modified for this long belongs to a process that was killed."""


def cached_path(conversion: Conversion) -> Path:
    """Where the converted model is, or will be; raises ModelLoadError.

    The folder's name depends on path, size and time of change of all files of the source; the file has the
    model's name.
    """
    folder = user_cache_path("llama-duo") / "converted"
    return folder / f"{_source_digest(conversion)}-{_state_digest(conversion)}" / f"{conversion.name}.gguf"


def converted(conversion: Conversion, progress: Progress | None = None) -> Path:
    """The model in the cache, converted if it is not there or the source has changed; raises ConfigError.

    The file appears when it is whole: any number of processes may ask at once.
    """
    path = cached_path(conversion)
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the cache folder {path.parent}: {error}") from error
        conversion.file().write(path, progress)
        _remove_old(path, _source_digest(conversion))
    return path


def _source_digest(conversion: Conversion) -> str:
    return hashlib.sha256(str(conversion.path.absolute()).encode()).hexdigest()[:12]


def _state_digest(conversion: Conversion) -> str:
    digest = hashlib.sha256(str(VERSION).encode())
    for path in conversion.files:
        try:
            state = path.stat()
        except OSError as error:
            raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error
        digest.update(f"\0{path.absolute()}\0{state.st_size}\0{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:12]


def _remove_old(newest: Path, source: str) -> None:
    """Delete what was converted from earlier states of the source, and partial files of killed processes."""
    for folder in newest.parent.parent.glob(f"{source}-*"):
        if folder != newest.parent:
            shutil.rmtree(
                folder, ignore_errors=True
            )  # still open elsewhere: the system keeps it, or deletes none
    for part in newest.parent.glob(f"*{PART_SUFFIX}"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                part.unlink()
