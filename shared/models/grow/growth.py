"""Writing a grown model: first the header with every tensor's place, then the tensors, a chunk at a time.

Memory stays at a few chunks however large the result is. The file appears under its name only when it is
whole: it is written under another name in the same folder and then renamed.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT

from shared.errors import ConfigError
from shared.models.grow.header import n_bytes, write_header
from shared.models.grow.layout import Matrix, Tensor, Vector, lay_out
from shared.models.grow.quantization import Bytes, Encoder, Quantization, rows_per_chunk
from shared.models.grow.shape import Shape
from shared.models.grow.source import SourceModel

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in total); an exception that it raises cancels the growth."""

VERSION = 1
"""Raise this when the same arguments give another file."""

PART_SUFFIX = ".part"
"""Ends the name of a file that is still being written."""

_HEADER_ROOM = 64 << 20  # bytes; more than the metadata of any vocabulary takes


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
    n_total = sum(n + len(_padding(n)) for n in (n_bytes(tensor, encoder) for tensor in tensors))
    part = destination.with_name(f"{destination.name}.{secrets.token_hex(4)}{PART_SUFFIX}")
    try:
        _require_room(destination.parent, n_total + _HEADER_ROOM)
        write_header(part, model, shape, encoder, tensors)
        with closing(_append(part, model, encoder, tensors)) as written:
            for n_done in written:
                _report(progress, n_done, n_total)
        part.replace(destination)
    except OSError as error:
        raise ConfigError(f"cannot write {destination}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _report(progress: Progress | None, n_done: int, n_total: int) -> None:
    if progress is not None:
        progress(n_done, n_total)


def _require_room(folder: Path, n_needed: int) -> None:
    n_free = shutil.disk_usage(folder).free
    if n_free < n_needed:
        raise ConfigError(
            f"the grown model takes {n_needed / 1e9:.2f} GB and {folder} has {n_free / 1e9:.2f} GB free:"
            " make room there or choose another folder"
        )


def _append(
    part: Path, model: SourceModel, encoder: Encoder, tensors: list[Tensor]
) -> Generator[int, None, None]:
    """Append every tensor, each padded to the format's alignment; yields the bytes done so far."""
    n_done = 0
    with part.open("ab") as file:
        file.write(_padding(file.tell()))
        for tensor in tensors:
            for chunk in _chunks(tensor, model, encoder):
                n_done += file.write(chunk.data)
                yield n_done
            n_done += file.write(_padding(n_bytes(tensor, encoder)))
        file.flush()
        # Or a power cut after the renaming could leave the whole name on half a file.
        os.fsync(file.fileno())
    yield n_done


def _padding(n: int) -> bytes:
    """What follows `n` bytes, so that the next tensor starts where llama.cpp expects it."""
    return bytes(-n % GGUF_DEFAULT_ALIGNMENT)


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
