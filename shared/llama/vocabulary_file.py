"""A model's metadata in a GGUF file of its own: what `Vocabulary.load` needs, without weights."""

import hashlib
import os
from pathlib import Path

from shared.cached_files import written_whole
from shared.errors import ConfigError
from shared.llama import library
from shared.llama.gguf_functions import InitParameters, gguf_function


def content_digest(path: Path) -> str:
    """What such a file is known by between leads and backs: the beginning of its SHA-256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def write_vocabulary_file(model: Path, destination: Path) -> None:
    """Copy all metadata of `model` (of a split model, the first part); 2 to 16 MB.

    The file appears when it is whole. Raises ConfigError.
    """
    library.start()
    source = gguf_function("gguf_init_from_file")(os.fsencode(model), InitParameters(True, None))
    if not source:
        raise ConfigError(f"{model} cannot be read")
    copied = gguf_function("gguf_init_empty")()
    try:
        gguf_function("gguf_set_kv")(copied, source)
        with written_whole(destination) as part:
            if not gguf_function("gguf_write_to_file")(copied, os.fsencode(part), True):
                raise ConfigError(f"cannot write {part}")
    except OSError as error:
        raise ConfigError(f"cannot write {destination}: {error}") from error
    finally:
        gguf_function("gguf_free")(copied)
        gguf_function("gguf_free")(source)
