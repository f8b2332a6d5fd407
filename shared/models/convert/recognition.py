"""Which format a path is of."""

from pathlib import Path

from shared.errors import ModelLoadError
from shared.models.convert import gpt2, llama2c
from shared.models.convert.conversion import Conversion

_GGUF_MAGIC = b"GGUF"
_ZIP_MAGIC = b"PK\x03\x04"
"""PyTorch's files are ZIP archives with pickled objects, which can run code when they are read."""


def read_conversion(path: Path, tokenizer: Path | None = None) -> Conversion | None:
    """The model at `path`, if it has to be converted; None for a GGUF and for what does not exist.

    `tokenizer`: of a llama2.c checkpoint. Raises ModelLoadError for a damaged or unknown one.
    """
    if path.is_dir():
        return gpt2.read_folder(path) if (path / gpt2.CONFIG).is_file() else None
    if not path.is_file():
        return None
    magic = _magic(path)
    if magic == _GGUF_MAGIC:
        return None
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
