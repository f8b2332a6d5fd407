"""Reads files in the safetensors format (github.com/huggingface/safetensors).

uint64   size of the header
JSON     {name: {"dtype": …, "shape": […], "data_offsets": [begin, end]}}, offsets from the header's end
data
"""

import math
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from shared.convert.conversion import SourceBytes, read_small
from shared.convert.gguf_file import Floats
from shared.errors import ModelLoadError

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
_MAX_HEADER = 16 << 20
_SIZE_BYTES = 8
_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_PLAIN_NAME = re.compile(r"[\w-][\w.-]*\.safetensors", re.ASCII)
"""The name of a shard; other names could lead out of the folder."""
_MAX_DIMENSIONS = 8

_Offset = Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]


class TensorEntry(BaseModel):
    """A tensor's entry in a file's header."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    dtype: str
    shape: Annotated[list[_Offset], Field(max_length=_MAX_DIMENSIONS)]
    data_offsets: tuple[_Offset, _Offset]


class _Index(BaseModel):
    weight_map: dict[str, str]


class SafetensorsFile:
    """A file of memory-mapped weights. entries: the tensors' entries by name."""

    def __init__(self, path: Path) -> None:
        """Read the header; raises ModelLoadError."""
        self.path = path
        self._data = SourceBytes(path)
        try:
            self._data_at, self.entries = self._read_header()
        except ValueError as error:
            raise ModelLoadError(
                f"{path} is not a complete safetensors file: {_first_line(error)}. Download it again"
            ) from error

    def rows(self, name: str, start: int, stop: int, *, transposed: bool = False) -> Floats:
        """Return rows [start, stop) of a tensor, or of its transpose if `transposed`, as float32."""
        entry = self.entries[name]
        values = self._data.array(
            self._data_at + entry.data_offsets[0], math.prod(entry.shape), _TYPES[entry.dtype]
        )
        matrix = values.reshape(1 if len(entry.shape) == 1 else entry.shape[0], -1)
        rows = np.ascontiguousarray(matrix[:, start:stop].T if transposed else matrix[start:stop])
        if entry.dtype == "BF16":  # the upper half of a float32
            return (rows.astype(np.uint32) << 16).view(np.float32)
        return rows.astype(np.float32)

    def _read_header(self) -> tuple[int, dict[str, TensorEntry]]:
        """Return the offset of the data, and the entries; raises ValueError."""
        data = self._data
        if data.n_bytes < _SIZE_BYTES:
            raise ValueError("it is too short")
        size = int.from_bytes(data.head(_SIZE_BYTES), "little")
        begin = _SIZE_BYTES + size
        if size > _MAX_HEADER or begin > data.n_bytes:
            raise ValueError(f"its header of {size} bytes is cut off or too large")
        header = from_json(data.head(begin)[_SIZE_BYTES:])
        if isinstance(header, dict):
            header.pop("__metadata__", None)
        entries = _ENTRIES.validate_python(header)
        for name, entry in entries.items():
            _check_place(name, entry, data.n_bytes - begin)
        return begin, entries


class SafetensorsFolder:
    """The tensors of a model in one file, or in shards with an index."""

    def __init__(self, folder: Path) -> None:
        """Read the headers of all files; raises ModelLoadError."""
        self._folder = folder
        self._index, shards = self._find()
        self._files = [SafetensorsFile(path) for path in shards]

    @property
    def paths(self) -> list[Path]:
        """All files, including the index."""
        return [*self._index, *(file.path for file in self._files)]

    @cached_property
    def files(self) -> dict[str, SafetensorsFile]:
        """The file of each tensor, by the tensor's name."""
        return {name: file for file in self._files for name in file.entries}

    def _find(self) -> tuple[list[Path], list[Path]]:
        """Return the index, if there is one, and the shards."""
        if (single := self._folder / SINGLE).is_file():
            return [], [single]
        index = self._folder / INDEX
        if not index.is_file():
            raise ModelLoadError(f"{self._folder} has no {SINGLE} or {INDEX}")
        names = sorted(set(_read_index(index).values()))
        strange = [name for name in names if not _PLAIN_NAME.fullmatch(name)]
        if strange or not names:
            raise ModelLoadError(f"{index} lists {strange[:1]}, which is not a file in its folder")
        if missing := [name for name in names if not (self._folder / name).is_file()]:
            raise ModelLoadError(f"{self._folder} lacks {missing[0]}, which {INDEX} lists. Download it")
        return [index], [self._folder / name for name in names]


_ENTRIES: TypeAdapter[dict[str, TensorEntry]] = TypeAdapter(dict[str, TensorEntry])


def _read_index(path: Path) -> dict[str, str]:
    try:
        return _Index.model_validate_json(read_small(path, _MAX_HEADER)).weight_map
    except ValidationError as error:
        raise ModelLoadError(f"{path} is not an index of shards: {_first_line(error)}") from error


def _check_place(name: str, entry: TensorEntry, n_bytes: int) -> None:
    """Raise ValueError unless the tensor lies within the file. The size is checked only for known types."""
    begin, end = entry.data_offsets
    if not begin <= end <= n_bytes:
        raise ValueError(f"{name[:100]} lies at bytes {begin} to {end} of {n_bytes}: it is cut off")
    if (
        entry.dtype in _TYPES
        and math.prod(entry.shape) * np.dtype(_TYPES[entry.dtype]).itemsize != end - begin
    ):
        raise ValueError(f"{name[:100]} has {end - begin} bytes, which does not match its shape")


def is_known_type(entry: TensorEntry) -> bool:
    """Return whether `SafetensorsFile.rows` can read this type."""
    return entry.dtype in _TYPES


def _first_line(error: Exception) -> Any:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))[:100]}: {first['msg']}"
    return error
