"""From the path that a person names to the GGUF file that llama.cpp loads.

A model of another format is recognised here, and converted once: the result is kept in the user's cache.
"""

import hashlib
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from shared.cached_files import CacheFolder, make_cache_folder, remove_abandoned
from shared.errors import ModelLoadError
from shared.models.file_kind import check_kind, parts_of

if TYPE_CHECKING:  # what writes models is imported when one is converted
    from shared.convert.conversion import Conversion
    from shared.models.gguf_file import Progress

log = logging.getLogger("model")


VERSION = 2
"""Raise this when the same source gives another file."""
_GGUF_MAGIC = b"GGUF"
_ZIP_MAGIC = b"PK\x03\x04"
"""PyTorch's files are ZIP archives with pickled objects, which can run code when they are read."""


def loadable(path: Path, tokenizer: Path | None = None) -> Path:
    """`path` itself, if it is a GGUF; a model of another format is converted, with a progress bar.

    `tokenizer`: of a llama2.c checkpoint. Raises ConfigError.
    """
    conversion = read_conversion(path, tokenizer)
    if conversion is None:
        parts_of(path)
        check_kind(path)
        return path
    if not cached_path(conversion).is_file():
        log.info("%s is %s: converting it to GGUF, once", path, conversion.kind)
    from shared.models.gguf_file import progress_bar  # noqa: PLC0415 - as above

    with progress_bar(f"converting {conversion.name}") as progress:
        return converted(conversion, progress)


def pending_conversion(path: Path, tokenizer: Path | None = None) -> "Conversion | None":
    """The conversion that `loadable` would do; None if there is nothing to do. Raises ConfigError."""
    conversion = read_conversion(path, tokenizer)
    return conversion if conversion and not cached_path(conversion).is_file() else None


def read_conversion(path: Path, tokenizer: Path | None = None) -> "Conversion | None":
    """The model at `path`, if it has to be converted; None for a GGUF and for what does not exist.

    `tokenizer`: of a llama2.c checkpoint. Raises ModelLoadError for a damaged or unknown one.
    """
    if not path.is_dir() and (not path.is_file() or _magic(path) == _GGUF_MAGIC):
        return None
    from shared.convert import gpt2, llama2c  # noqa: PLC0415 - as above

    if path.is_dir():
        return gpt2.read_folder(path) if (path / gpt2.CONFIG).is_file() else None
    magic = _magic(path)
    if magic == llama2c.MAGIC:
        return llama2c.read_checkpoint(path, tokenizer)
    _refuse_others(path, magic)
    return llama2c.read_checkpoint(path, tokenizer) if path.suffix == ".bin" else None


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error


def _refuse_others(path: Path, magic: bytes) -> None:
    """Raise ModelLoadError for files that are a part of a model."""
    if path.suffix == ".safetensors":
        raise ModelLoadError(f"{path} is a part of a model: name its folder, with config.json")
    if magic == _ZIP_MAGIC:
        raise ModelLoadError(
            f"{path} is a PyTorch file: GPT-2 is read from a folder with model.safetensors, "
            "other models as GGUF"
        )


def cached_path(conversion: "Conversion") -> Path:
    """Where the converted model is, or will be; raises ModelLoadError.

    The folder's name depends on path, size and time of change of all files of the source; the file has the
    model's name.
    """
    folder = user_cache_path("llama-duo") / CacheFolder.CONVERTED
    return folder / f"{_source_digest(conversion)}-{_state_digest(conversion)}" / f"{conversion.name}.gguf"


def converted(conversion: "Conversion", progress: "Progress | None" = None) -> Path:
    """The model in the cache, converted if it is not there or the source has changed; raises ConfigError.

    The file appears when it is whole: any number of processes may ask at once.
    """
    path = cached_path(conversion)
    if not path.is_file():
        make_cache_folder(path.parent)
        conversion.file().write(path, progress)
        _remove_old(path, _source_digest(conversion))
    return path


def _source_digest(conversion: "Conversion") -> str:
    return hashlib.sha256(str(conversion.path.absolute()).encode()).hexdigest()[:12]


def _state_digest(conversion: "Conversion") -> str:
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
            shutil.rmtree(folder, ignore_errors=True)  # what another process has open stays
    remove_abandoned(newest.parent)
