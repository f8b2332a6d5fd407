"""The model to grow from: an open GGUF file, its shape, its metadata and its weights.

Weights are read (and dequantized) a few rows at a time; the file stays memory-mapped.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderField, ReaderTensor, quants

from shared.errors import ConfigError
from shared.models.gguf_file import Floats

ARCHITECTURE = "llama"


@dataclass(frozen=True)
class Shape:
    """The four numbers that growing changes; head width, context and vocabulary stay the source's."""

    width: int
    """The width of the residual stream: llama.cpp's n_embd."""
    n_layers: int
    n_heads: int
    """Query heads. Key/value heads follow, so that as many query heads share one as in the source."""
    n_feed_forward: int
    """Hidden units of each layer's feed-forward part."""

    def __str__(self) -> str:
        return f"{self.width}x{self.n_layers}, {self.n_heads} heads, feed-forward {self.n_feed_forward}"


def require_larger(new: Shape, old: Shape) -> None:
    """Raise ConfigError, naming the field, if `new` is smaller than `old` anywhere."""
    for field in ("width", "n_layers", "n_heads", "n_feed_forward"):
        wanted, least = getattr(new, field), getattr(old, field)
        if wanted < least:
            raise ConfigError(f"{field} {wanted} is smaller than the source's {least}: a model can only grow")


def require_whole_groups(n_heads: int, group: int) -> None:
    """Raise ConfigError unless `n_heads` query heads fill whole groups: each shares one key/value head."""
    if n_heads % group:
        raise ConfigError(f"n_heads {n_heads} is not a multiple of {group}, the heads per key/value head")


def require_whole_blocks(rows: dict[str, int], block: int) -> None:
    """Raise ConfigError unless each of the named row lengths fills whole blocks of a quantization."""
    for field, length in rows.items():
        if length % block:
            raise ConfigError(f"{field} makes rows of {length} values, but the type packs {block} at a time")


class SourceModel:
    """A llama-architecture GGUF with attention heads of one width. ConfigError for any other file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            reader = GGUFReader(path)
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"{path} cannot be read as a GGUF file: {error}") from error
        self.fields: dict[str, ReaderField] = dict(reader.fields)
        self._tensors: dict[str, ReaderTensor] = {tensor.name: tensor for tensor in reader.tensors}
        architecture = self._optional("general.architecture", None)
        if architecture != ARCHITECTURE:
            raise ConfigError(f"{path} has the architecture {architecture!r}: only llama models can grow")
        self.name: str = self._optional("general.name", path.stem)
        self.shape = Shape(
            width=self._count("llama.embedding_length"),
            n_layers=self._count("llama.block_count"),
            n_heads=self._count("llama.attention.head_count"),
            n_feed_forward=self._count("llama.feed_forward_length"),
        )
        self.n_kv_heads = self._count("llama.attention.head_count_kv", self.shape.n_heads)
        self.head_width = self._count("llama.attention.key_length", self.shape.width // self.shape.n_heads)
        value_width = self._count("llama.attention.value_length", self.head_width)
        if value_width != self.head_width or self.shape.n_heads % self.n_kv_heads:
            raise ConfigError(f"{path} has attention heads of unequal width or uneven groups: it cannot grow")
        self.epsilon = float(self._required("llama.attention.layer_norm_rms_epsilon"))

    @property
    def heads_per_group(self) -> int:
        """Query heads that share one key/value head."""
        return self.shape.n_heads // self.n_kv_heads

    @property
    def n_parameters(self) -> int:
        return sum(tensor.n_elements for tensor in self._tensors.values())

    @property
    def tensor_names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def dimensions(self, name: str) -> tuple[int, ...]:
        """`(rows, width)` of a matrix, `(width,)` of a vector; KeyError for a tensor that is not there."""
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def rows(self, name: str, start: int, stop: int) -> Floats:
        """Rows `[start, stop)` of a matrix as float32, dequantized."""
        return self._values(name, self._tensors[name].data[start:stop])

    def vector(self, name: str) -> Floats:
        """A whole 1-dimensional tensor as float32."""
        return self._values(name, self._tensors[name].data)

    def _values(self, name: str, data: Any) -> Floats:
        kind = self._tensors[name].tensor_type
        try:
            return np.asarray(quants.dequantize(data, kind), np.float32)
        except NotImplementedError as error:
            raise ConfigError(f"{self.path} stores {name} as {kind.name}, which cannot be read") from error

    def _count(self, key: str, default: int | None = None) -> int:
        value = self._required(key) if default is None else self._optional(key, default)
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self.path}: {key} is not one positive number, so the model cannot grow")
        return value

    def _required(self, key: str) -> Any:
        if key not in self.fields:
            raise ConfigError(f"{self.path} does not say {key}: it is not a complete llama model")
        return self.fields[key].contents()

    def _optional(self, key: str, default: Any) -> Any:
        return self.fields[key].contents() if key in self.fields else default
