"""Writes a GGUF file: first the header with the place of every tensor, then the tensors in chunks.

Memory use stays at a few chunks however large the file is. The file appears under its name when it is
complete.
"""

import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    GGML_QUANT_VERSION,
    GGUF_DEFAULT_ALIGNMENT,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    quants,
)
from numpy.typing import NDArray

from shared.cached_files import written_whole
from shared.errors import ConfigError
from shared.progress import Progress
from shared.terminal import size_text

_HEADER_ROOM = 64 << 20  # bytes; more than the metadata of any vocabulary takes

Quantization = Literal["f32", "f16", "q8_0", "q4_0"]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_FILE_TYPES: dict[Quantization, LlamaFileType] = {
    "f32": LlamaFileType.ALL_F32,
    "f16": LlamaFileType.MOSTLY_F16,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
}
# Values per chunk: 4 MiB of float32, so that memory stays small however large a matrix is.
_N_CHUNK = 1 << 20


class Encoder:
    """Encodes rows in one quantization."""

    def __init__(self, quantization: Quantization) -> None:
        self.ggml_type = GGMLQuantizationType[quantization.upper()]
        self.file_type = _FILE_TYPES[quantization]
        self.block, self._block_bytes = GGML_QUANT_SIZES[self.ggml_type]

    def row_bytes(self, width: int) -> int:
        """Return the bytes of one row of `width` values; `width` must be a multiple of the block size."""
        assert width % self.block == 0
        return width // self.block * self._block_bytes

    def encode(self, rows: Floats) -> Bytes:
        """Encode values of shape (n, width) as bytes of shape (n, row_bytes(width))."""
        packed: Bytes = quants.quantize(np.ascontiguousarray(rows), self.ggml_type).view(np.uint8)
        return packed


@dataclass(frozen=True, slots=True)
class Weights:
    """A tensor of a model to write.

    dimensions: (rows, width) of a matrix, (width,) of a vector. `rows(start, stop)` returns an array of shape
    (stop - start, width); a vector is one row. `encoded(encoder, start, stop)` returns the same rows as bytes
    in the encoder's format if these are available, else None. exact: the tensor is never quantized, because
    llama.cpp needs full precision.
    """

    name: str
    dimensions: tuple[int, ...]
    rows: Callable[[int, int], Floats]
    encoded: Callable[[Encoder, int, int], Bytes | None] = lambda _encoder, _start, _stop: None
    exact: bool = False

    @property
    def n_rows(self) -> int:
        return self.dimensions[0] if len(self.dimensions) > 1 else 1

    @property
    def width(self) -> int:
        return self.dimensions[-1]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor's weights, and the encoder that writes them."""

    weights: Weights
    encoder: Encoder

    @property
    def n_bytes(self) -> int:
        return self.weights.n_rows * self.encoder.row_bytes(self.weights.width)

    @property
    def n_padded(self) -> int:
        """The tensor's size in bytes, including the padding after it."""
        return self.n_bytes + len(_padding(self.n_bytes))

    def chunks(self) -> Iterator[Bytes]:
        """Yield all bytes of the tensor, some rows at a time."""
        weights, step = self.weights, max(1, _N_CHUNK // self.weights.width)
        for start in range(0, weights.n_rows, step):
            stop = min(start + step, weights.n_rows)
            known = weights.encoded(self.encoder, start, stop)
            yield self.encoder.encode(weights.rows(start, stop)) if known is None else known


class GgufFile:
    """A GGUF file to write, with its matrices in one quantization."""

    def __init__(
        self,
        architecture: str,
        describe: Callable[[GGUFWriter], None],
        weights: Sequence[Weights],
        quantization: Quantization,
    ) -> None:
        """describe: adds all metadata except the architecture and the types."""
        self._architecture = architecture
        self._describe = describe
        self._main = main = Encoder(quantization)
        others = {name: Encoder(name) for name in ("f32", "f16")}

        def encoder(each: Weights) -> Encoder:
            """Return the encoder that llama-quantize would choose: f16 if rows do not fill whole blocks."""
            if len(each.dimensions) == 1 or each.exact:
                return others["f32"]
            return others["f16"] if each.width % main.block else main

        self.tensors = [StoredTensor(each, encoder(each)) for each in weights]

    @property
    def n_bytes(self) -> int:
        return sum(tensor.n_padded for tensor in self.tensors)

    def write(self, destination: Path, progress: Progress | None = None) -> None:
        """Write the file to `destination`; raises ConfigError.

        After a failure, or an exception from `progress`, `destination` is unchanged.
        """
        try:
            _require_room(destination.parent, self.n_bytes + _HEADER_ROOM)
            with written_whole(destination) as part:
                self._write_header(part)
                with closing(self._append(part)) as written:
                    for n_done in written:
                        if progress is not None:
                            progress(n_done, self.n_bytes)
        except OSError as error:
            raise ConfigError(f"cannot write {destination}: {error}") from error

    def write_outline(self, destination: Path) -> None:
        """Write the metadata, and zeros as weights, which take no space on most file systems.

        llama.cpp can load the vocabulary of such a file. Raises ConfigError.
        """
        try:
            self._write_header(destination)
            os.truncate(destination, destination.stat().st_size + GGUF_DEFAULT_ALIGNMENT + self.n_bytes)
        except OSError as error:
            raise ConfigError(f"cannot write {destination}: {error}") from error

    def _write_header(self, path: Path) -> None:
        """Create the file up to the padding before the first tensor; raises OSError."""
        writer = GGUFWriter(path, self._architecture)
        writer.add_file_type(self._main.file_type)
        writer.add_quantization_version(GGML_QUANT_VERSION)
        self._describe(writer)
        ignored = np.dtype(np.float32)  # because raw_dtype is given
        for tensor in self.tensors:
            weights, ggml_type = tensor.weights, tensor.encoder.ggml_type
            writer.add_tensor_info(
                weights.name, weights.dimensions, ignored, tensor.n_bytes, raw_dtype=ggml_type
            )
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
        finally:
            writer.close()

    def _append(self, part: Path) -> Generator[int, None, None]:
        """Append every tensor, padded to the format's alignment; yield the number of bytes written so far."""
        n_done = 0
        with part.open("ab") as file:
            file.write(_padding(file.tell()))
            for tensor in self.tensors:
                for chunk in tensor.chunks():
                    n_done += file.write(chunk.data)
                    yield n_done
                n_done += file.write(_padding(tensor.n_bytes))
            file.flush()
            # Without this, a power cut after the renaming could leave a half file under the final name.
            os.fsync(file.fileno())
        yield n_done


def _padding(n: int) -> bytes:
    """Return the padding after `n` bytes, which aligns the next tensor."""
    return bytes(-n % GGUF_DEFAULT_ALIGNMENT)


def _require_room(folder: Path, n_needed: int) -> None:
    n_free = shutil.disk_usage(folder).free
    if n_free < n_needed:
        raise ConfigError(
            f"the model needs {size_text(n_needed)}, but {folder} has only {size_text(n_free)} "
            "free. Free some space or choose another folder"
        )
