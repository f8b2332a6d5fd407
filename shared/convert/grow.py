"""Grows a model: a small llama-architecture GGUF file becomes a larger one that computes the same function.

The real weights are in the top-left corner of each larger matrix. The results of all added weights are
multiplied by zero. A step has the cost of the new shape, but the output of the small model. So a file of a
few megabytes can stand in for a big model.

Let d be the width of the source and D the new width. Three facts keep the function the same:

* The embedding is zero in the new dimensions of the residual stream. Every matrix that writes to the stream
  (`attn_output`, `ffn_down`) has zero rows there, so these dimensions stay zero.
* New heads and new feed-forward units compute noise, but the columns of `attn_output` and `ffn_down` that
  read them are zero. In an added layer these matrices are zero everywhere, so the layer is the identity.
* RMSNorm divides by the mean square over D dimensions instead of d, and only d of them are non-zero.
  Therefore norm weights are multiplied by sqrt(d / D) and epsilon by d / D.

Heads keep their width, so rotary positions stay the same. Heads are added in whole groups, so that each old
query head keeps its key/value head.

python -m shared.convert.grow SOURCE DESTINATION --width … --layers … --heads … --feed-forward …
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, ReaderField, ReaderTensor, quants
from pydantic import Field
from pydantic_settings import CliPositionalArg

from shared.convert.gguf_file import (
    Bytes,
    Encoder,
    Floats,
    GgufFile,
    Quantization,
    Weights,
)
from shared.errors import ConfigError
from shared.exits import exiting_in_words, say
from shared.progress import Progress, progress_bar
from shared.settings.base import ProgramSettings

VERSION = 2
"""Increase this when the same arguments give another file than before."""
_ARCHITECTURE = "llama"
_NOISE_SCALE = np.float32(0.02)
"""The size of the initial weights of a real model, so that the added arithmetic stays in a normal range."""


@dataclass(frozen=True)
class Shape:
    """The four numbers that growing changes; head width, context and vocabulary stay as in the source."""

    width: int
    """The width of the residual stream: llama.cpp's n_embd."""
    n_layers: int
    n_heads: int
    """The number of query heads. The number of key/value heads grows with it, so that each key/value head
    serves as many query heads as in the source.
    """
    n_feed_forward: int
    """The number of hidden units of each layer's feed-forward part."""

    def __str__(self) -> str:
        return f"{self.width}x{self.n_layers}, {self.n_heads} heads, feed-forward {self.n_feed_forward}"


def grow(
    source: Path,
    destination: Path,
    shape: Shape,
    quantization: Quantization,
    progress: Progress | None = None,
) -> None:
    """Write a model of `shape` that computes the same function as `source`, up to the rounding of
    `quantization`.

    Raises ConfigError if the source is not a plain llama model, if it cannot grow to the shape, or if the
    folder has no room. After a failure, or an exception from `progress`, `destination` is unchanged.
    """
    model = _GrowthSource(source)
    _check_shape(model, shape, Encoder(quantization).block)
    weights = [*_outside(model, shape), *_layers(model, shape)]
    if missing := sorted(model.tensors.keys() - model.used):
        raise ConfigError(f"{source} has {missing[0]}: only plain llama models can grow")
    describe = partial(_describe, source=model, shape=shape, weights=weights)
    GgufFile(_ARCHITECTURE, describe, weights, quantization).write(destination, progress)


class _GrowthSource:
    """The model to grow from, with attention heads of one width. Raises ConfigError for any other file.

    Weights are read and dequantized a few rows at a time; the file stays memory-mapped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            reader = GGUFReader(path)
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"{path} cannot be read as a GGUF file: {error}") from error
        self.fields: dict[str, ReaderField] = dict(reader.fields)
        self.tensors: dict[str, ReaderTensor] = {tensor.name: tensor for tensor in reader.tensors}
        self.used: set[str] = set()
        """The names of tensors whose dimensions were read."""
        architecture = self._optional("general.architecture", None)
        if architecture != _ARCHITECTURE:
            raise ConfigError(f"{path} has the architecture {architecture!r}: only llama models can grow")
        self.name: str = self._optional("general.name", path.stem)
        self.shape = Shape(
            width=self._count("llama.embedding_length"),
            n_layers=self._count("llama.block_count"),
            n_heads=self._count("llama.attention.head_count"),
            n_feed_forward=self._count("llama.feed_forward_length"),
        )
        n_kv_heads = self._count("llama.attention.head_count_kv", self.shape.n_heads)
        self.head_width = self._count("llama.attention.key_length", self.shape.width // self.shape.n_heads)
        value_width = self._count("llama.attention.value_length", self.head_width)
        if value_width != self.head_width or self.shape.n_heads % n_kv_heads:
            raise ConfigError(f"{path} has attention heads of unequal width or uneven groups: it cannot grow")
        self.heads_per_group = self.shape.n_heads // n_kv_heads
        self.epsilon = float(self._required("llama.attention.layer_norm_rms_epsilon"))

    def dimensions(self, name: str) -> tuple[int, ...]:
        """Return (rows, width) of a matrix, (width,) of a vector; raises ConfigError if the tensor is
        missing.
        """
        if name not in self.tensors:
            raise ConfigError(f"{self.path} lacks {name}: it is not a complete llama model")
        self.used.add(name)
        return tuple(int(size) for size in reversed(self.tensors[name].shape))

    def values(self, name: str, rows: slice = slice(None)) -> Floats:
        """Return a vector, or some rows of a matrix, as float32."""
        tensor = self.tensors[name]
        try:
            return np.asarray(quants.dequantize(tensor.data[rows], tensor.tensor_type), np.float32)
        except NotImplementedError as error:
            kind = tensor.tensor_type.name
            raise ConfigError(f"{self.path} stores {name} as {kind}, a type that cannot be read") from error

    def _count(self, key: str, default: int | None = None) -> int:
        value = self._required(key) if default is None else self._optional(key, default)
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self.path}: {key} is not a single positive number, so the model cannot grow")
        return value

    def _required(self, key: str) -> Any:
        if key not in self.fields:
            raise ConfigError(f"{self.path} does not say {key}: it is not a complete llama model")
        return self.fields[key].contents()

    def _optional(self, key: str, default: Any) -> Any:
        return self.fields[key].contents() if key in self.fields else default


def _check_shape(source: _GrowthSource, shape: Shape, block: int) -> None:
    """Raise ConfigError, naming the field, if the source cannot grow to the shape.

    block: the number of values that the quantization packs together.
    """
    for field in fields(Shape):
        wanted, minimum = getattr(shape, field.name), getattr(source.shape, field.name)
        if wanted < minimum:
            raise ConfigError(
                f"{field.name} {wanted} is smaller than the source's {minimum}: a model can only grow"
            )
    group = source.heads_per_group
    if shape.n_heads % group:
        raise ConfigError(
            f"n_heads {shape.n_heads} is not a multiple of {group}, the number of heads per key/value head"
        )
    heads = shape.n_heads * source.head_width
    rows = {"width": shape.width, "n_heads": heads, "n_feed_forward": shape.n_feed_forward}
    for name, length in rows.items():
        if length % block:
            raise ConfigError(f"{name} makes rows of {length} values, which must be a multiple of {block}")


def _outside(source: _GrowthSource, shape: Shape) -> Iterator[Weights]:
    """Yield the tensors that are not in a layer. `output` is missing if it is tied to the embedding."""
    for name in ("token_embd.weight", "output.weight"):
        if name != "output.weight" or name in source.tensors:
            yield _matrix(source, name, source.dimensions(name)[0], shape.width, name, noise=False)
    yield _norm(source, shape, "output_norm.weight", "output_norm.weight")
    factors = "rope_freqs.weight"
    if factors in source.tensors:
        yield Weights(factors, source.dimensions(factors), lambda _start, _stop: source.values(factors)[None])


def _layers(source: _GrowthSource, shape: Shape) -> Iterator[Weights]:
    """Yield the tensors of all layers; the real layers are spread over the depth."""
    queries = shape.n_heads * source.head_width
    keys = queries // source.heads_per_group
    width, hidden = shape.width, shape.n_feed_forward
    #        part            rows     columns  noise: does nothing read its new rows?
    parts = (("attn_q",      queries, width,   True),
             ("attn_k",      keys,    width,   True),
             ("attn_v",      keys,    width,   True),
             ("attn_output", width,   queries, False),
             ("ffn_gate",    hidden,  width,   True),
             ("ffn_up",      hidden,  width,   True),
             ("ffn_down",    width,   hidden,  False))  # fmt: skip
    n_old = source.shape.n_layers
    places = {old * (shape.n_layers - 1) // max(n_old - 1, 1): old for old in range(n_old)}
    for layer in range(shape.n_layers):

        def origin(part: str, old: int | None = places.get(layer)) -> str | None:
            return None if old is None else f"blk.{old}.{part}.weight"

        for part in ("attn_norm", "ffn_norm"):
            yield _norm(source, shape, f"blk.{layer}.{part}.weight", origin(part))
        for part, n_rows, n_columns, noise in parts:
            name = f"blk.{layer}.{part}.weight"
            yield _matrix(source, name, n_rows, n_columns, origin(part), noise=noise)


def _norm(source: _GrowthSource, shape: Shape, name: str, origin: str | None) -> Weights:
    """Return the source's weights, scaled and followed by zeros; for an added layer, return ones."""
    n_old = source.dimensions(origin)[0] if origin else 0

    def rows(_start: int, _stop: int) -> Floats:
        if origin is None:
            return np.ones((1, shape.width), np.float32)
        values = np.zeros((1, shape.width), np.float32)
        values[0, :n_old] = source.values(origin) * np.float32(math.sqrt(source.shape.width / shape.width))
        return values

    return Weights(name, (shape.width,), rows)


def _matrix(
    source: _GrowthSource, name: str, n_rows: int, width: int, origin: str | None, *, noise: bool
) -> Weights:
    """Return the source's matrix in the top-left corner, zeros to its right, and noise or zeros elsewhere."""
    n_old, old_width = source.dimensions(origin) if origin else (0, 0)

    def added(n: int) -> Floats:
        generator = np.random.default_rng(0)
        shape = n, width
        return (
            generator.standard_normal(shape, np.float32) * _NOISE_SCALE
            if noise
            else np.zeros(shape, np.float32)
        )

    def rows(start: int, stop: int) -> Floats:
        values = added(stop - start)
        if origin and start < n_old:
            n = min(stop, n_old) - start
            values[:n, :old_width] = source.values(origin, slice(start, start + n))
            values[:n, old_width:] = 0
        return values

    @functools.cache  # all chunks below the origin are alike
    def encoded_added(encoder: Encoder, n: int) -> Bytes:
        return encoder.encode(added(n))

    def encoded(encoder: Encoder, start: int, stop: int) -> Bytes | None:
        return encoded_added(encoder, stop - start) if start >= n_old else None

    return Weights(name, (n_rows, width), rows, encoded)


# Written anew for the result, or no longer true of it.
_NOT_COPIED = {
    "general.architecture",
    "general.alignment",
    "general.name",
    "general.description",
    "general.size_label",
    "general.file_type",
    "general.quantization_version",
    "llama.embedding_length",
    "llama.block_count",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.attention.key_length",
    "llama.attention.value_length",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.rope.dimension_count",
}
_READER_PREFIX = "GGUF."  # GGUFReader's own names for the file's first numbers


def _describe(writer: GGUFWriter, source: _GrowthSource, shape: Shape, weights: list[Weights]) -> None:
    """Add the metadata, with a name that says that the model was grown."""
    n_old = sum(tensor.n_elements for tensor in source.tensors.values())
    n_new = sum(each.n_rows * each.width for each in weights)
    writer.add_name(f"{source.name}-grown")
    writer.add_description(
        f"{source.name} ({n_old / 1e6:.1f}M parameters) grown to {n_new / 1e6:.1f}M:"
        " the small model's answers at a big model's cost, for demonstrations and measurements"
    )
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(shape.n_feed_forward)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_heads // source.heads_per_group)
    # llama.cpp divides width by n_heads unless these are given.
    writer.add_key_length(source.head_width)
    writer.add_value_length(source.head_width)
    writer.add_rope_dimension_count(source.head_width)
    # The mean square is taken over more dimensions, the added ones zero.
    writer.add_layer_norm_rms_eps(source.epsilon * source.shape.width / shape.width)
    for key, field in source.fields.items():
        if key not in _NOT_COPIED and not key.startswith(_READER_PREFIX):
            _copy(writer, key, field.contents(), field.types)


def _copy(writer: GGUFWriter, key: str, value: Any, types: list[GGUFValueType]) -> None:
    kind = types[0]
    if kind != GGUFValueType.ARRAY:
        writer.add_key_value(key, value, kind)
    elif value:  # an empty array does not say the type of its elements
        writer.add_key_value(key, value, kind, sub_type=types[-1])


class GrowSettings(ProgramSettings):
    """Turn a small llama-architecture GGUF into a larger one that computes the same function."""

    program = "grow"
    prefix = "GROW_"

    source: CliPositionalArg[Path] = Field(description="the GGUF file to grow")
    destination: CliPositionalArg[Path] = Field(description="the GGUF file to write")
    width: int = Field(description="width of the residual stream (n_embd)")
    layers: int = Field(description="number of layers")
    heads: int = Field(description="number of query heads; key/value heads grow in proportion")
    feed_forward: int = Field(description="number of hidden units of each feed-forward part")
    type: Quantization = Field("f16", description="data type of the matrices")


def main() -> None:
    settings = GrowSettings.from_command_line()
    shape = Shape(settings.width, settings.layers, settings.heads, settings.feed_forward)
    with exiting_in_words("grow"):
        try:
            with progress_bar(settings.destination.name) as progress:
                grow(settings.source, settings.destination, shape, settings.type, progress)
        except KeyboardInterrupt:
            say("grow: canceled. Nothing was written")
            raise


if __name__ == "__main__":
    main()
