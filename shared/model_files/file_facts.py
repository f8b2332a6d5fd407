"""Facts about a model file for lists of models, read without loading the model."""

from pathlib import Path
from typing import Literal

from shared.errors import ModelLoadError
from shared.model_files.file_kind import RANK, pooling_of, size_of


def task_of(path: Path) -> Literal["embedding", "rerank"] | None:
    """Return the task of a GGUF file's model; None: it continues texts."""
    pooling = pooling_of(path)
    return None if pooling is None else "rerank" if pooling == RANK else "embedding"


def size_if_known(model: Path | None) -> int:
    """Return the size of a model in bytes; 0 if it cannot be read (the process that loads it reports why)."""
    try:
        return size_of(model) if model else 0
    except (ModelLoadError, OSError):
        return 0
