"""Finds the GGUF file for a path that a person has given, converting models of other formats."""

from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import ModelLoadError
from shared.model_files.damaged_file import N_READ, why_unreadable
from shared.model_files.file_kind import check_kind, parts_of
from shared.model_files.gguf_header import GGUF_MAGIC

if TYPE_CHECKING:  # what reads models of other formats is imported when there is one
    from shared.convert.conversion import Conversion


def loadable(path: Path, tokenizer: Path | None = None) -> Path:
    """Return `path` if it is a GGUF file, else the converted model; shows a progress bar.

    tokenizer: the tokenizer of a llama2.c checkpoint. Raises ConfigError.
    """
    if _may_be_converted(path):
        from shared.convert.converted_file import converted, read_conversion  # noqa: PLC0415 - as above

        if conversion := read_conversion(path, tokenizer):
            return converted(conversion)
    parts_of(path)
    check_kind(path)
    return path


def pending_conversion(path: Path, tokenizer: Path | None = None) -> "Conversion | None":
    """Return the conversion that `loadable` would do; None if there is nothing to do. Raises ConfigError."""
    if not _may_be_converted(path):
        return None
    from shared.convert import converted_file  # noqa: PLC0415 - as above

    return converted_file.pending_conversion(path, tokenizer)


def _may_be_converted(path: Path) -> bool:
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be loaded: {why_unreadable(error)}") from error
    return is_folder or (is_file and not first_bytes(path).startswith(GGUF_MAGIC))


def first_bytes(path: Path) -> bytes:
    """Return enough bytes to recognize the kind of a file; raises ModelLoadError."""
    try:
        with path.open("rb") as file:
            return file.read(N_READ)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be loaded: {why_unreadable(error)}") from error
