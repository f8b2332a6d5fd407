"""The bytes of a source file, memory-mapped: nothing is read before it is needed."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelLoadError


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
