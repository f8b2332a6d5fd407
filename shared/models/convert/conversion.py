"""A model of another format as a GGUF file: which tensors it has, and how they are stored.

Knows no format: `llama2c` and `gpt2` say where the weights are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gguf import GGML_QUANT_VERSION, GGUFWriter
from numpy.typing import NDArray

from shared.errors import ModelLoadError
from shared.models.gguf_file import (
    Bytes,
    Encoder,
    Floats,
    GgufFile,
    Quantization,
    StoredTensor,
    rows_per_chunk,
)

ConversionType = Literal["auto", "f32", "f16", "q8_0"]
"""How matrices are stored; auto: as in the source."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A tensor of the source; `name` is the GGUF's.

    dimensions: (rows, width) of a matrix, (width,) of a vector. `rows(start, stop)` has shape
    (stop - start, width); a vector is one row. `blocks(start, stop)` has the same rows as q8_0, where the
    source has them as 8-bit integers. `exact`: never quantized, because llama.cpp needs it so.
    """

    name: str
    dimensions: tuple[int, ...]
    rows: Callable[[int, int], Floats]
    blocks: Callable[[int, int], Bytes] | None = None
    exact: bool = False

    @property
    def n_rows(self) -> int:
        return self.dimensions[0] if len(self.dimensions) > 1 else 1

    @property
    def width(self) -> int:
        return self.dimensions[-1]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A source that was recognised, with all headers checked.

    kind: what it is, for messages. files: all that it is made of. describe: adds the metadata but the name,
    the architecture and the types. source_type: how the source stores matrices.
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
        """The model's name, from the path."""
        path = self.path.absolute()
        return path.name if path.is_dir() else path.stem

    def file(self, stored_as: ConversionType = "auto") -> GgufFile:
        """The GGUF file with this model."""
        main = Encoder(self.source_type if stored_as == "auto" else stored_as)
        encoders = {name: Encoder(name) for name in ("f32", "f16")} | {"main": main}
        return GgufFile(
            self.architecture,
            partial(self._describe, main=main),
            [_stored(each, encoders[_encoder_name(each, main)]) for each in self.weights],
        )

    def _describe(self, writer: GGUFWriter, main: Encoder) -> None:
        writer.add_name(self.name)
        writer.add_file_type(main.file_type)
        writer.add_quantization_version(GGML_QUANT_VERSION)
        self.describe(writer)


class SourceBytes:
    """Arrays of a file. Offsets must lie within it: check headers before."""

    def __init__(self, path: Path) -> None:
        """Raises ModelLoadError."""
        try:
            self._bytes: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise ModelLoadError(f"{path} cannot be read: {error}") from error

    @property
    def n_bytes(self) -> int:
        """The size of the file."""
        return len(self._bytes)

    def head(self, n: int) -> bytes:
        """The first `n` bytes, or all if there are fewer."""
        return self._bytes[:n].tobytes()

    def array(self, at: int, n_values: int, kind: str) -> NDArray[Any]:
        """`n_values` numbers of a NumPy type that begin at byte `at`."""
        dtype = np.dtype(kind)
        end = at + n_values * dtype.itemsize
        assert 0 <= at <= end <= self.n_bytes
        return self._bytes[at:end].view(dtype)


def read_small(path: Path, max_bytes: int) -> bytes:
    """A whole file of at most `max_bytes`; raises ModelLoadError."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        raise ModelLoadError(f"{path} is too large: more than {max_bytes >> 20} MiB")
    return data


def _encoder_name(weights: Weights, main: Encoder) -> str:
    """The type that llama-quantize would choose: rows that do not fill blocks are stored as f16."""
    if len(weights.dimensions) == 1 or weights.exact:
        return "f32"
    return "f16" if weights.width % main.block else "main"


def _stored(weights: Weights, encoder: Encoder) -> StoredTensor:
    return StoredTensor(
        weights.name,
        weights.dimensions,
        encoder.ggml_type,
        weights.n_rows * encoder.row_bytes(weights.width),
        partial(_chunks, weights, encoder),
    )


def _chunks(weights: Weights, encoder: Encoder) -> Iterator[Bytes]:
    step = rows_per_chunk(weights.width)
    for start in range(0, weights.n_rows, step):
        stop = min(start + step, weights.n_rows)
        if weights.blocks is not None and encoder.ggml_type.name == "Q8_0":
            yield weights.blocks(start, stop)
        else:
            yield encoder.encode(weights.rows(start, stop))
