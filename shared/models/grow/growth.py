"""Writing a grown model, its tensors a chunk at a time."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_VERSION, GGMLQuantizationType, GGUFValueType, GGUFWriter

from shared.models.gguf_file import (
    Bytes,
    Encoder,
    GgufFile,
    Progress,
    Quantization,
    StoredTensor,
    rows_per_chunk,
)
from shared.models.grow.layout import Matrix, Tensor, Vector, lay_out
from shared.models.grow.source import ARCHITECTURE, Shape, SourceModel

VERSION = 1
"""Raise this when the same arguments give another file."""


def grow(
    source: Path,
    destination: Path,
    shape: Shape,
    quantization: Quantization,
    progress: Progress | None = None,
) -> None:
    """Write a model of `shape` that computes what `source` computes, up to the rounding of `quantization`.

    Raises ConfigError, with a sentence naming what to change, for a source that is not a plain llama model,
    a shape that it cannot grow to, and a folder without room. Whatever goes wrong, also an exception from
    `progress`, leaves `destination` as it was.
    """
    model, encoder = SourceModel(source), Encoder(quantization)
    tensors = lay_out(model, shape, encoder.block)
    file = GgufFile(
        ARCHITECTURE,
        partial(describe, source=model, shape=shape, encoder=encoder, tensors=tensors),
        [_stored(tensor, model, encoder) for tensor in tensors],
    )
    file.write(destination, progress)


def _stored(tensor: Tensor, model: SourceModel, encoder: Encoder) -> StoredTensor:
    """Vectors stay in full precision, as llama.cpp wants them."""
    read = partial(_chunks, tensor, model, encoder)
    if isinstance(tensor, Vector):
        n_bytes = tensor.width * np.dtype(np.float32).itemsize
        return StoredTensor(tensor.name, tensor.dimensions, GGMLQuantizationType.F32, n_bytes, read)
    n_bytes = tensor.n_rows * encoder.row_bytes(tensor.width)
    return StoredTensor(tensor.name, tensor.dimensions, encoder.ggml_type, n_bytes, read)


def _chunks(tensor: Tensor, model: SourceModel, encoder: Encoder) -> Iterator[Bytes]:
    if isinstance(tensor, Vector):
        yield _vector(tensor, model)
        return
    n_old = 0
    if tensor.origin is not None:
        n_old, _ = model.dimensions(tensor.origin)
        yield from _corner(tensor, tensor.origin, model, encoder)
    yield from encoder.repeat(tensor.n_rows - n_old, tensor.width, noise=tensor.noise)


def _corner(matrix: Matrix, origin: str, model: SourceModel, encoder: Encoder) -> Iterator[Bytes]:
    """The rows that the source has, padded with zeros."""
    n_old, old_width = model.dimensions(origin)
    step = rows_per_chunk(matrix.width)
    for start in range(0, n_old, step):
        stop = min(start + step, n_old)
        rows = np.zeros((stop - start, matrix.width), np.float32)
        rows[:, :old_width] = model.rows(origin, start, stop)
        yield encoder.encode(rows)


def _vector(vector: Vector, model: SourceModel) -> Bytes:
    if vector.origin is None:
        return np.ones(vector.width, np.float32).view(np.uint8)
    values = np.zeros(vector.width, np.float32)
    old = model.vector(vector.origin)
    values[: len(old)] = old * np.float32(vector.scale)
    return values.view(np.uint8)


# Said anew for the result, or no longer true of it.
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


def describe(
    writer: GGUFWriter, source: SourceModel, shape: Shape, encoder: Encoder, tensors: list[Tensor]
) -> None:
    """Add all metadata but the architecture."""
    _introduce(writer, source, sum(tensor.n_parameters for tensor in tensors))
    _measure(writer, source, shape)
    writer.add_file_type(encoder.file_type)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    for key, field in source.fields.items():
        if key not in _NOT_COPIED and not key.startswith(_READER_PREFIX):
            _copy(writer, key, field.contents(), field.types)


def _introduce(writer: GGUFWriter, source: SourceModel, n_parameters: int) -> None:
    """Describe the file as a grown model, so that it is not mistaken for one with more knowledge."""
    writer.add_name(f"{source.name}-grown")
    writer.add_description(
        f"{source.name} ({source.n_parameters / 1e6:.1f}M parameters) grown to {n_parameters / 1e6:.1f}M:"
        " the small model's answers at a big model's cost, for demonstrations and measurements"
    )


def _measure(writer: GGUFWriter, source: SourceModel, shape: Shape) -> None:
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(shape.n_feed_forward)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_heads // source.heads_per_group)
    # llama.cpp divides width by n_heads unless these are given.
    writer.add_key_length(source.head_width)
    writer.add_value_length(source.head_width)
    writer.add_rope_dimension_count(source.head_width)
    # The mean square is taken over more dimensions, the added ones zero: see `layout`.
    writer.add_layer_norm_rms_eps(source.epsilon * source.shape.width / shape.width)


def _copy(writer: GGUFWriter, key: str, value: Any, types: list[GGUFValueType]) -> None:
    kind = types[0]
    if kind != GGUFValueType.ARRAY:
        writer.add_key_value(key, value, kind)
    elif value:  # an empty array does not say the type of its elements
        writer.add_key_value(key, value, kind, sub_type=types[-1])
