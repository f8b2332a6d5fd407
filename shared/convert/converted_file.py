"""Recognizes models of other formats, converts each once, and keeps the result in the user's cache."""

import hashlib
import logging
import shutil
from pathlib import Path

from platformdirs import user_cache_path

from shared.cached_files import CacheFolder, make_cache_folder, remove_abandoned
from shared.convert import gpt2, llama2c
from shared.convert.conversion import Conversion
from shared.errors import ModelLoadError
from shared.model_files.damaged_file import what_else, why_unusable
from shared.model_files.gguf_header import GGUF_MAGIC
from shared.model_files.model_file import first_bytes
from shared.progress import progress_bar

log = logging.getLogger("model")


VERSION = 2
"""Increase this when the same source is converted to another file than before."""


def read_conversion(path: Path, tokenizer: Path | None = None) -> Conversion | None:
    """Return the conversion for the model at `path`; None for a GGUF file, or if there is no file.

    tokenizer: the tokenizer of a llama2.c checkpoint. Raises ModelLoadError for a damaged or unknown file.
    """
    if path.is_dir():
        return gpt2.read_folder(path) if (path / gpt2.CONFIG).is_file() else None
    beginning = first_bytes(path) if path.is_file() else GGUF_MAGIC
    if beginning.startswith(GGUF_MAGIC):
        return None
    if not beginning.startswith(llama2c.MAGIC) and (path.suffix != ".bin" or what_else(beginning)):
        raise ModelLoadError(f"{path} cannot be loaded: {why_unusable(path)}")
    return llama2c.read_checkpoint(path, tokenizer)


def pending_conversion(path: Path, tokenizer: Path | None = None) -> Conversion | None:
    """Return the conversion that `converted` would perform; None if none is needed. Raises ConfigError."""
    conversion = read_conversion(path, tokenizer)
    return conversion if conversion and not cached_path(conversion).is_file() else None


def cached_path(conversion: Conversion) -> Path:
    """Return the path of the converted model, whether or not it exists; raises ModelLoadError.

    The folder's name depends on path, size and modification time of all source files. The file has the
    model's name.
    """
    folder = user_cache_path("llama-duo") / CacheFolder.CONVERTED
    return folder / f"{_source_digest(conversion)}-{_state_digest(conversion)}" / f"{conversion.name}.gguf"


def converted(conversion: Conversion) -> Path:
    """Return the path of the converted model in the cache; convert it if it is missing or outdated.

    Raises ConfigError. Shows a progress bar. The file appears when it is complete, so any number of processes
    may call this at the same time.
    """
    path = cached_path(conversion)
    if not path.is_file():
        log.info("%s is %s: converting it to GGUF once", conversion.path, conversion.kind)
        make_cache_folder(path.parent)
        with progress_bar(f"converting {conversion.name}") as progress:
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
    """Delete files converted from earlier states of the source, and partial files of killed processes."""
    for folder in newest.parent.parent.glob(f"{source}-*"):
        if folder != newest.parent:
            shutil.rmtree(folder, ignore_errors=True)  # what another process has open stays
    remove_abandoned(newest.parent)
