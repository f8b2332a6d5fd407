"""Writing a GGUF file: first the header with every tensor's place, then the tensors, a chunk at a time.

Memory stays at a few chunks however large the file is. It appears under its name only when it is whole: it
is written under another name in the same folder and then renamed.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFWriter

from shared.errors import ConfigError
from shared.models.quantization import Bytes

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in total); an exception that it raises cancels the writing."""

PART_SUFFIX = ".part"
"""Ends the name of a file that is still being written."""

_HEADER_ROOM = 64 << 20  # bytes; more than the metadata of any vocabulary takes


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
        part = destination.with_name(f"{destination.name}.{secrets.token_hex(4)}{PART_SUFFIX}")
        try:
            _require_room(destination.parent, self.n_bytes + _HEADER_ROOM)
            self._write_header(part)
            with closing(self._append(part)) as written:
                for n_done in written:
                    if progress is not None:
                        progress(n_done, self.n_bytes)
            part.replace(destination)
        except OSError as error:
            raise ConfigError(f"cannot write {destination}: {error}") from error
        finally:
            part.unlink(missing_ok=True)

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
        ignored = np.dtype(np.float32)  # beside raw_dtype
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
