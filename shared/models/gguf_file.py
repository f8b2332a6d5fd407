"""Writing a GGUF file: first the header with every tensor's place, then the tensors, a chunk at a time.

Memory stays at a few chunks however large the file is, which appears under its name only when it is whole.
"""

import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    quants,
)
from numpy.typing import NDArray
from tqdm import tqdm

from shared.cached_files import written_whole
from shared.errors import ConfigError

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in total); an exception that it raises cancels the writing."""

_HEADER_ROOM = 64 << 20  # bytes; more than the metadata of any vocabulary takes

Quantization = Literal["f32", "f16", "q8_0", "q4_0"]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)

_FILE_TYPES: dict[Quantization, LlamaFileType] = {
    "f32": LlamaFileType.ALL_F32,
    "f16": LlamaFileType.MOSTLY_F16,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
}
# Values per chunk: 4 MiB of float32, so that memory stays small however large a matrix is.
_N_CHUNK = 1 << 20
# As large as the initial weights of a real model, so that the added arithmetic stays in a normal range.
_NOISE_SCALE = 0.02


class Encoder:
    """Turns rows into bytes of one quantization; what repeats (zeros, noise) is encoded once."""

    def __init__(self, quantization: Quantization) -> None:
        self.ggml_type = GGMLQuantizationType[quantization.upper()]
        self.file_type = _FILE_TYPES[quantization]
        self.block, self._block_bytes = GGML_QUANT_SIZES[self.ggml_type]
        generator = np.random.default_rng(0)
        self._noise = generator.standard_normal(_N_CHUNK, dtype=np.float32) * np.float32(_NOISE_SCALE)
        self._repeated: dict[tuple[int, bool], Bytes] = {}

    def row_bytes(self, width: int) -> int:
        """Bytes of one row of `width` values, which must fill whole blocks."""
        assert width % self.block == 0
        return width // self.block * self._block_bytes

    def encode(self, rows: Floats) -> Bytes:
        """`(n, width)` values as `(n, row_bytes(width))` bytes."""
        packed: Bytes = quants.quantize(np.ascontiguousarray(rows), self.ggml_type).view(np.uint8)
        return packed

    def repeat(self, n_rows: int, width: int, *, noise: bool) -> Iterator[Bytes]:
        """`n_rows` rows of noise, or of zeros, a chunk at a time."""
        chunk = self._repeated.get((width, noise))
        if chunk is None:
            shape = (rows_per_chunk(width), width)
            chunk = self.encode(np.resize(self._noise, shape) if noise else np.zeros(shape, np.float32))
            self._repeated[width, noise] = chunk
        for start in range(0, n_rows, len(chunk)):
            yield chunk[: n_rows - start]


def rows_per_chunk(width: int) -> int:
    """How many rows of this width are worked on at once."""
    return max(1, _N_CHUNK // width)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it is in the file: `n_bytes` in all, as the chunks that `read` yields.

    dimensions: (rows, width) of a matrix, (width,) of a vector.
    """

    name: str
    dimensions: tuple[int, ...]
    ggml_type: GGMLQuantizationType
    n_bytes: int
    read: Callable[[], Iterator[Bytes]]

    @property
    def n_padded(self) -> int:
        """Bytes with the padding after it."""
        return self.n_bytes + len(_padding(self.n_bytes))


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What to write. `describe` adds the metadata, except for the architecture."""

    architecture: str
    describe: Callable[[GGUFWriter], None]
    tensors: Sequence[StoredTensor]

    @property
    def n_bytes(self) -> int:
        """The size of all tensors in the file."""
        return sum(tensor.n_padded for tensor in self.tensors)

    def write(self, destination: Path, progress: Progress | None = None) -> None:
        """Write it to `destination`; raises ConfigError.

        Whatever goes wrong, also an exception from `progress`, leaves `destination` as it was.
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
        """Write metadata, and zeros instead of weights, which take no space on most file systems.

        llama.cpp can load the vocabulary of such a file. Raises ConfigError.
        """
        try:
            self._write_header(destination)
            os.truncate(destination, destination.stat().st_size + GGUF_DEFAULT_ALIGNMENT + self.n_bytes)
        except OSError as error:
            raise ConfigError(f"cannot write {destination}: {error}") from error

    def _write_header(self, path: Path) -> None:
        """Create the file with everything up to the first tensor's alignment padding; may raise OSError."""
        writer = GGUFWriter(path, self.architecture)
        self.describe(writer)
        ignored = np.dtype(np.float32)  # because raw_dtype is given
        for tensor in self.tensors:
            writer.add_tensor_info(
                tensor.name, tensor.dimensions, ignored, tensor.n_bytes, raw_dtype=tensor.ggml_type
            )
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
        finally:
            writer.close()

    def _append(self, part: Path) -> Generator[int, None, None]:
        """Append every tensor, each padded to the format's alignment; yields the bytes done so far."""
        n_done = 0
        with part.open("ab") as file:
            file.write(_padding(file.tell()))
            for tensor in self.tensors:
                for chunk in tensor.read():
                    n_done += file.write(chunk.data)
                    yield n_done
                n_done += file.write(_padding(tensor.n_bytes))
            file.flush()
            # Or a power cut after the renaming could leave the whole name on half a file.
            os.fsync(file.fileno())
        yield n_done


def _padding(n: int) -> bytes:
    """What follows `n` bytes, so that the next tensor starts where llama.cpp expects it."""
    return bytes(-n % GGUF_DEFAULT_ALIGNMENT)


def _require_room(folder: Path, n_needed: int) -> None:
    n_free = shutil.disk_usage(folder).free
    if n_free < n_needed:
        raise ConfigError(
            f"the model takes {n_needed / 1e9:.2f} GB and {folder} has {n_free / 1e9:.2f} GB free:"
            " make room there or choose another folder"
        )


APPEARS_AFTER_SECONDS = 0.1


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """Yields the function that moves the bar. It appears after a moment, so that short work shows none."""
    with tqdm(unit="B", unit_scale=True, desc=what, file=sys.stderr, delay=APPEARS_AFTER_SECONDS) as bar:

        def show(n_done: int, n_total: int) -> None:
            bar.total = n_total
            bar.update(n_done - bar.n)

        yield show
