"""Reads the header of a GGUF file without llama.cpp: metadata, and the size that the file should have."""

import math
import mmap
import struct
from dataclasses import dataclass
from typing import Any

GGUF_MAGIC = b"GGUF"
_HEADER = struct.Struct("<4sIQQ")
_LENGTH = struct.Struct("<Q")
_KIND = struct.Struct("<I")
_VOCABULARY = "tokenizer."
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    kind: struct.Struct(f"<{form}") for kind, form in zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True)
}
"""The format of each type with a fixed size; the other types are strings and arrays."""
_ALIGNMENT = "general.alignment"
_MAX_DIMENSIONS = 4


class EndsInHeaderError(Exception):
    """The data end before the header does."""


class BadHeaderError(Exception):
    """The header has values that no GGUF file has."""


@dataclass(slots=True)
class _Cursor:
    """Reads on from `at`; raises EndsInHeaderError at the end of `data`."""

    data: bytes | mmap.mmap
    at: int = 0

    def number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack(self.take(form.size))
        return value

    def value(self) -> str | float | None:
        """Return the next value, after reading its type; None for a list. Raises BadHeaderError for an
        unknown type.
        """
        kind = self.number(_KIND)
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            self._skip_list()
            return None
        number: float = self.number(_number(kind))
        return number

    def _skip_list(self) -> None:
        kind, n = self.number(_KIND), self.number(_LENGTH)
        if kind == _STRING:
            for _ in range(n):
                self.skip(self.number(_LENGTH))
        else:
            self.skip(n * _number(kind).size)

    def text(self) -> str:
        return self.take(self.number(_LENGTH)).decode("utf-8", "replace")

    def take(self, n: int) -> bytes:
        """Return the next `n` bytes; `n` comes from the file and may be any number."""
        start = self.at
        self.skip(n)
        return bytes(self.data[start : self.at])

    def skip(self, n: int) -> None:
        if self.at + n > len(self.data):
            raise EndsInHeaderError
        self.at += n


def _number(kind: int) -> struct.Struct:
    if kind not in _NUMBERS:
        raise BadHeaderError(f"type {kind}")
    return _NUMBERS[kind]


def first_values(data: bytes) -> dict[str, str | float]:
    """Return the metadata without lists, up to the vocabulary or the end of `data`; empty for other files."""
    values: dict[str, str | float] = {}
    if len(data) < _HEADER.size or not data.startswith(GGUF_MAGIC):
        return values
    _, _, _, n_values = _HEADER.unpack_from(data)
    cursor = _Cursor(data, _HEADER.size)
    try:
        for _ in range(n_values):
            key = cursor.text()
            if key.startswith(_VOCABULARY):
                break
            if (value := cursor.value()) is not None:
                values[key] = value
    except (EndsInHeaderError, BadHeaderError):
        pass  # the end of what was read, or a type that does not exist
    return values


def read_version(data: bytes | mmap.mmap) -> int:
    """Return the version of the format; raises EndsInHeaderError."""
    cursor = _Cursor(data, len(GGUF_MAGIC))
    version: int = cursor.number(_KIND)
    return version


def declared_size(data: bytes | mmap.mmap) -> int:
    """Return the size in bytes of the whole file whose header is at the beginning of `data`. Raises
    EndsInHeaderError, BadHeaderError.
    """
    cursor = _Cursor(data)
    _, _, n_tensors, n_values = _HEADER.unpack(cursor.take(_HEADER.size))
    alignment: Any = 32
    for _ in range(n_values):
        key, value = cursor.text(), cursor.value()
        if key == _ALIGNMENT:
            alignment = value
    ends = [_tensor_end(cursor) for _ in range(n_tensors)]
    if not isinstance(alignment, int) or alignment <= 0:
        raise BadHeaderError(f"alignment {alignment}")
    return -(-cursor.at // alignment) * alignment + max(ends, default=0)


def _tensor_end(cursor: _Cursor) -> int:
    """Return the offset at which the next tensor's data end, counted from the beginning of all data."""
    from gguf import GGML_QUANT_SIZES  # noqa: PLC0415 - imports numpy, and is needed for damaged files only

    cursor.text()
    n_dimensions = cursor.number(_KIND)
    if n_dimensions > _MAX_DIMENSIONS:
        raise BadHeaderError(f"{n_dimensions} dimensions")
    n = math.prod(cursor.number(_LENGTH) for _ in range(n_dimensions))
    kind, offset = cursor.number(_KIND), cursor.number(_LENGTH)
    sizes = {int(each): size for each, size in GGML_QUANT_SIZES.items()}
    if kind not in sizes:
        raise BadHeaderError(f"tensor type {kind}")
    n_block, n_bytes = sizes[kind]
    return int(offset + n // n_block * n_bytes)
