"""The files of texts that clients save (`--slot-save-path`), one file for one text.

What computes it (`shared.llama.start_key`), a digest of the manifest, and the manifest (a `SavedText`), a
line each; then its parts. Nothing is believed that does not have its digest.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shared.cache_edits import Snapshot
from shared.cached_files import written_whole
from shared.errors import RequestError
from shared.saved_text import SavedPart, SavedText, text_hash

_MAGIC = "llama-duo slot 1"
_MOST_LINE_BYTES = 1 << 30


def write(path: Path, key: str, text: SavedText, pieces: Sequence[tuple[Snapshot, memoryview]]) -> int:
    """Write `text`, whose parts are `pieces`, whole or not at all; how many bytes. Raises RequestError."""
    parts = tuple(SavedPart.of(snapshot, "", len(piece), _digest(piece)) for snapshot, piece in pieces)
    manifest = text.model_copy(update={"parts": parts}).model_dump_json()
    head = f"{_MAGIC} {key}\n{_digest(manifest.encode())}\n{manifest}\n".encode()
    try:
        with written_whole(path) as part:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(head)
                for _, piece in pieces:
                    file.write(piece)
            return part.stat().st_size
    except OSError as error:
        raise RequestError(f"cannot write {path.name}: {error.strerror}") from error


def read_manifest(path: Path, key: str) -> SavedText:
    """What a file holds; raises RequestError."""
    with _opened(path) as file:
        return _read_manifest(file, path, key)


def read_parts(path: Path, key: str, into: Sequence[memoryview]) -> int:
    """Fill `into`, one for each part of the manifest; the size of the file. Raises RequestError."""
    with _opened(path) as file:
        saved = _read_manifest(file, path, key)
        for part, view in zip(saved.parts, into, strict=True):
            if file.readinto(view) != part.size or _digest(view) != part.digest:  # type: ignore[attr-defined]  # of a buffered file
                raise _damaged(path)
        return file.tell()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise RequestError(f"there is no {path.name}") from None
    except OSError as error:
        raise RequestError(f"cannot read {path.name}: {error.strerror}") from error


def _read_manifest(file: BinaryIO, path: Path, key: str) -> SavedText:
    magic, _, saved_with = file.readline(len(_MAGIC) + 64).decode(errors="replace").strip().rpartition(" ")
    if magic != _MAGIC:
        raise RequestError(f"{path.name} is no saved slot")
    if saved_with != key:
        raise RequestError(
            f"{path.name} was saved with another model, other options, or another version of llama.cpp"
        )
    digest = file.readline(64).decode(errors="replace").strip()
    manifest = file.readline(_MOST_LINE_BYTES).rstrip(b"\n")
    if _digest(manifest) != digest:
        raise _damaged(path)
    try:
        saved = SavedText.model_validate_json(manifest)
    except ValueError as error:
        raise _damaged(path) from error
    if file.tell() + sum(part.size for part in saved.parts) != path.stat().st_size:
        raise _damaged(path)
    return saved


def _damaged(path: Path) -> RequestError:
    return RequestError(f"{path.name} is damaged or cut off")


def _digest(content: bytes | memoryview) -> str:
    return text_hash(content).hexdigest()
