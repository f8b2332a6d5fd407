"""How the matrices of a written model are stored, and rows of numbers in that form.

Knows nothing about models: rows of float32 go in, rows of bytes come out.
"""

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType, quants
from numpy.typing import NDArray

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
