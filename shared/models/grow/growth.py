"""Writing a grown model, its tensors a chunk at a time."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType

from shared.models.gguf_file import GgufFile, Progress, StoredTensor
from shared.models.grow.header import describe
from shared.models.grow.layout import Matrix, Tensor, Vector, lay_out
from shared.models.grow.shape import Shape
from shared.models.grow.source import ARCHITECTURE, SourceModel
from shared.models.quantization import Bytes, Encoder, Quantization, rows_per_chunk

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
