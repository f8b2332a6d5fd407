"""Metadata of a model from its GGUF file."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Metadata of a GGUF file. `size` is in bytes, without metadata.

    `file_type` is llama.cpp's number for the type of most weights.
    """

    name: str
    path: Path
    architecture: str
    description: str
    n_vocab: int
    vocab_type: int
    n_ctx_train: int
    n_embd: int
    n_params: int
    size: int
    chat_template: str | None
    tool_template: str | None = None
    file_type: int | None = None
