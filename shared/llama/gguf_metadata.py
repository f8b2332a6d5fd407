"""The content of a GGUF file except weights: names of tensors, and metadata, which can be written to a file
of its own.
"""

import hashlib
import os
from pathlib import Path

from shared.cached_files import written_whole
from shared.errors import ConfigError
from shared.llama import library
from shared.llama.unbound import GgufInitParameters, function

_UNQUANTIZED = frozenset({0, 1, 30})
"""The values of `ggml_type` for f32, f16 and bf16."""
_UINT32 = 4
"""The value of `gguf_type` for an unsigned 32-bit number."""


def tensor_names(path: Path) -> list[str]:
    """Return the names of tensors in the order of the file; empty if llama.cpp cannot read it.

    For a split model, only the tensors of this part.
    """
    return list(tensor_sizes(path))


def tensor_sizes(path: Path) -> dict[str, int]:
    """Return the sizes of tensors in bytes, by name; see `tensor_names`."""
    return {name: size for name, size, _ in _tensors(path)}


def unquantized_tensors(path: Path) -> list[str]:
    """Return the names of tensors in f32, f16 or bf16; see `tensor_names`."""
    return [name for name, _, type_ in _tensors(path) if type_ in _UNQUANTIZED]


def _tensors(path: Path) -> list[tuple[str, int, int]]:
    """Return (name, bytes, `ggml_type`) of each tensor."""
    file = function("gguf_init_from_file")(os.fsencode(path), GgufInitParameters(True, None))
    if not file:
        return []
    name, size, type_ = (function(f"gguf_get_tensor_{each}") for each in ("name", "size", "type"))
    n_tensors = function("gguf_get_n_tensors")(file)
    found = [
        (name(file, i).decode("utf-8", "replace"), size(file, i), type_(file, i)) for i in range(n_tensors)
    ]
    function("gguf_free")(file)
    return found


def integers(path: Path, prefix: str) -> dict[str, int]:
    """Return the unsigned 32-bit metadata whose keys begin with `prefix`, without lists."""
    file = function("gguf_init_from_file")(os.fsencode(path), GgufInitParameters(True, None))
    if not file:
        return {}
    key, type_, value = (function(f"gguf_get_{each}") for each in ("key", "kv_type", "val_u32"))
    found = {
        name: value(file, i)
        for i in range(function("gguf_get_n_kv")(file))
        if (name := key(file, i).decode("utf-8", "replace")).startswith(prefix) and type_(file, i) == _UINT32
    }
    function("gguf_free")(file)
    return found


def content_digest(path: Path) -> str:
    """Return the name by which leads and backs identify a vocabulary file: the start of its SHA-256, in
    hexadecimal.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def write_vocabulary_file(model: Path, destination: Path) -> None:
    """Copy all metadata of `model` (for a split model, of its first part) to a file of 2 to 16 MB.

    `Vocabulary.load` needs no more. The file appears when it is complete. Raises ConfigError.
    """
    library.start()
    source = function("gguf_init_from_file")(os.fsencode(model), GgufInitParameters(True, None))
    if not source:
        raise ConfigError(f"{model} cannot be read")
    copied = function("gguf_init_empty")()
    try:
        function("gguf_set_kv")(copied, source)
        with written_whole(destination) as part:
            if not function("gguf_write_to_file")(copied, os.fsencode(part), True):
                raise ConfigError(f"cannot write {part}")
    except OSError as error:
        raise ConfigError(f"cannot write {destination}: {error}") from error
    finally:
        function("gguf_free")(copied)
        function("gguf_free")(source)
