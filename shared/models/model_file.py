"""From the path that a person names to the GGUF file that llama.cpp loads."""

import logging
from pathlib import Path

from shared.models.convert import Conversion, read_conversion
from shared.models.convert.conversion_cache import cached_path, converted
from shared.models.file_kind import check_kind
from shared.models.progress_bar import progress_bar
from shared.models.split import parts_of

log = logging.getLogger("model")


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
    with progress_bar(f"converting {conversion.name}") as progress:
        return converted(conversion, progress)


def pending_conversion(path: Path, tokenizer: Path | None = None) -> Conversion | None:
    """The conversion that `loadable` would do; None if there is nothing to do. Raises ConfigError."""
    conversion = read_conversion(path, tokenizer)
    return conversion if conversion and not cached_path(conversion).is_file() else None
