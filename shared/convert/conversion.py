"""Converts a model of another format to a GGUF file.

This module knows no format: `llama2c` and `gpt2` say where the weights are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from shared.convert.gguf_file import GgufFile, Quantization, Weights
from shared.errors import ModelLoadError

ConversionType = Literal["auto", "f32", "f16", "q8_0"]
"""The type of stored matrices; auto: as in the source."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A model in a known format, with all headers checked.

    kind: the name of the format, for messages. files: all files of the model. describe: adds the metadata
    except the name, the architecture and the types. source_type: the type in which the model stores matrices.
    """

    path: Path
    kind: str
    files: tuple[Path, ...]
    architecture: str
    describe: Callable[[GGUFWriter], None]
    weights: Sequence[Weights]
    source_type: Quantization

    @property
    def name(self) -> str:
        path = self.path.absolute()
        return path.name if path.is_dir() else path.stem

    def file(self, stored_as: ConversionType = "auto") -> GgufFile:
        quantization = self.source_type if stored_as == "auto" else stored_as
        return GgufFile(self.architecture, self._describe, self.weights, quantization)

    def _describe(self, writer: GGUFWriter) -> None:
        writer.add_name(self.name)
        self.describe(writer)


class SourceBytes:
    """The bytes of a file as arrays. Offsets must lie within the file, so check headers first."""

    def __init__(self, path: Path) -> None:
        """Map the file into memory; raises ModelLoadError."""
        try:
            self._bytes: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise ModelLoadError(f"{path} cannot be read: {error}") from error

    @property
    def n_bytes(self) -> int:
        return len(self._bytes)

    def head(self, n: int) -> bytes:
        """Return the first `n` bytes, or all if there are fewer."""
        return self._bytes[:n].tobytes()

    def array(self, at: int, n_values: int, kind: str) -> NDArray[Any]:
        """Return `n_values` numbers of the NumPy type `kind`, from byte `at` on."""
        dtype = np.dtype(kind)
        end = at + n_values * dtype.itemsize
        assert 0 <= at <= end <= self.n_bytes
        return self._bytes[at:end].view(dtype)


def read_small(path: Path, max_bytes: int) -> bytes:
    """Read a whole file of at most `max_bytes`; raises ModelLoadError."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        raise ModelLoadError(f"{path} is too large: more than {max_bytes >> 20} MiB")
    return data
