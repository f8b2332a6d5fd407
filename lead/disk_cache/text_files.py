"""The files of texts on disk: written, read and checked, and deleted when they are too many.

In `FOLDER/texts/KEY/`, a KEY for each way to compute them (`shared.llama.start_key`), each text has a
manifest (NAME.json: a digest, then a `SavedText`) and a file for each part. A part is written once, under a
name that is used once, before the manifest that names it; so whoever dies, or shares the folder, leaves whole
texts. Nothing is believed that does not have its digest.
"""

import contextlib
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from shared.cache_edits import Snapshot
from shared.cached_files import ABANDONED_SECONDS, write_private
from shared.saved_text import SavedPart, SavedText, text_hash

log = logging.getLogger("engine")

_OURS = re.compile(r"([0-9a-f]{24})(\.json|-[0-9a-f]{12}\.kv|\.json\.[0-9a-f]{8}\.part)")
_MANIFEST = ".json"
_CHUNK = 1 << 20
_TICK_SECONDS = 0.02
"""What happens to a folder so soon after something else may leave it the same date: Linux counts in ticks."""


class DamagedTextError(Exception):
    """A file is not what was written."""


class TextToSave(NamedTuple):
    """As in `SavedText`. pieces: its snapshots, with their bytes where those are not on disk yet."""

    name: str
    owner: str
    tokens: list[int]
    n_prefill: int
    pieces: Sequence[tuple[Snapshot, memoryview | SavedPart]]

    @property
    def n_new_bytes(self) -> int:
        return sum(len(piece) for _, piece in self.pieces if isinstance(piece, memoryview))

    @property
    def n_bytes(self) -> int:
        return self.n_new_bytes + sum(piece.size for _, piece in self.pieces if isinstance(piece, SavedPart))


class FolderNews(NamedTuple):
    """What has happened in a folder: texts that others have written, the least recently used first, and names
    of texts that are gone, whoever has deleted them.
    """

    texts: list[SavedText]
    gone: set[str]


def new_name() -> str:
    """For a text that is not on disk."""
    return secrets.token_hex(12)


class TextFiles:
    """One thread may write, while another looks, and others read."""

    def __init__(self, folder: Path, key: str, n_most: int) -> None:
        """n_most: bytes in `folder`, whatever their KEY. Raises OSError."""
        self.n_most = n_most
        self._root, self._key = folder / "texts", key
        self.folder = self._root / key
        self._changed_at = 0
        self._seen: dict[str, float] = {}  # name → when its manifest was written or used, while it is there
        self._writing = ""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def look(self) -> FolderNews:
        """What has happened since the last call, of which there is one at a time.

        Raises OSError; a text that is damaged is deleted.
        """
        changed_at = self.folder.stat().st_mtime_ns
        if changed_at == self._changed_at:
            return FolderNews([], set())
        if 0 <= time.time() - changed_at / 1e9 < _TICK_SECONDS:
            time.sleep(_TICK_SECONDS)
        known, found = set(self._seen), self._manifests()
        self._changed_at = changed_at
        gone = known - found.keys()
        for name in gone:
            self._seen.pop(name, None)
        texts = []
        for name, used_at in sorted(found.items(), key=lambda each: each[1]):
            if name == self._writing or self._seen.get(name) == used_at:
                continue
            self._seen[name] = used_at
            try:
                texts.append(self._read_manifest(self._manifest(name)))
            except FileNotFoundError:  # another lead has deleted it
                continue
            except (OSError, ValueError, DamagedTextError) as error:
                log.warning("a text on disk is damaged, and deleted: %s: %s", self._manifest(name), error)
                self.delete(name)
        return FolderNews(texts, gone)

    def _manifests(self) -> dict[str, float]:
        """The names of the texts that are there, and when they were used."""
        found = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if (ours := _OURS.fullmatch(entry.name)) and ours[2] == _MANIFEST:
                    with contextlib.suppress(FileNotFoundError):
                        found[ours[1]] = entry.stat().st_mtime
        return found

    def write(self, text: TextToSave, pace: Callable[[int], None]) -> SavedText:
        """Raises OSError, after which nothing has changed: FileNotFoundError if earlier parts are gone.

        pace: is told how many bytes are to be written.
        """
        self._writing = text.name
        try:
            return self._write(text, pace)
        finally:
            self._writing = ""

    def _write(self, text: TextToSave, pace: Callable[[int], None]) -> SavedText:
        self.touch(text.name)
        self.shrink(text.n_new_bytes)
        parts: list[SavedPart] = []
        new: list[Path] = []
        try:
            for snapshot, piece in text.pieces:
                if isinstance(piece, memoryview):
                    path = self.folder / f"{text.name}-{secrets.token_hex(6)}.kv"
                    new.append(path)
                    parts.append(_write_part(path, snapshot, piece, pace))
                else:
                    (self.folder / piece.file).stat()
                    parts.append(piece)
            saved = SavedText(
                name=text.name,
                owner=text.owner,
                tokens=text.tokens,
                n_prefill=text.n_prefill,
                parts=tuple(parts),
            )
            body = saved.model_dump_json().encode()
            write_private(self._manifest(text.name), self._digest(body) + b"\n" + body)
            self._seen[text.name] = _used_at(self._manifest(text.name))
        except BaseException:
            for path in new:
                path.unlink(missing_ok=True)
            raise
        self._delete_parts(text.name, {part.file for part in parts})
        return saved

    def read(self, part: SavedPart, into: memoryview) -> None:
        """Raises OSError, DamagedTextError."""
        digest, n_read = text_hash(), 0
        with (self.folder / part.file).open("rb", buffering=0) as file:
            while n := file.readinto(into[n_read : n_read + _CHUNK]):
                digest.update(into[n_read : n_read + n])
                n_read += n
            is_longer = bool(file.read(1))
        if is_longer or n_read != part.size or digest.hexdigest() != part.digest:
            raise DamagedTextError(f"{part.file} is not what was written")

    def touch(self, name: str) -> None:
        """A text was used."""
        with contextlib.suppress(OSError):
            os.utime(self._manifest(name))
            self._seen[name] = _used_at(self._manifest(name))

    def delete(self, name: str) -> None:
        """Raises OSError; a text that is not there is no error."""
        self._manifest(name).unlink(missing_ok=True)
        self._delete_parts(name, set())

    def shrink(self, n_more: int) -> None:
        """Delete texts, of any KEY, until `n_more` bytes have room; and files that belong to none."""
        texts: dict[str, list[Path]] = {}
        for path in self._root.glob("*/*"):
            if ours := _OURS.fullmatch(path.name):
                texts.setdefault(str(path.parent / ours[1]), []).append(path)
        sizes = {name: sum(_size(path) for path in paths) for name, paths in texts.items()}
        used = {name: _used_at(Path(f"{name}.json")) for name in texts}
        n_bytes = n_more + sum(sizes.values())
        for name in sorted(texts, key=lambda each: used[each]):
            if not used[name] and time.time() - max(map(_used_at, texts[name])) < ABANDONED_SECONDS:
                continue  # it is being written
            if used[name] and n_bytes <= self.n_most:
                break
            for path in sorted(texts[name], key=lambda each: each.suffix != ".json"):
                path.unlink(missing_ok=True)
            n_bytes -= sizes[name]

    def _read_manifest(self, path: Path) -> SavedText:
        digest, _, body = path.read_bytes().partition(b"\n")
        if digest != self._digest(body):
            raise DamagedTextError("it is not what was written")
        return SavedText.model_validate_json(body)

    def _manifest(self, name: str) -> Path:
        return self.folder / f"{name}{_MANIFEST}"

    def _digest(self, body: bytes) -> bytes:
        return text_hash(f"{self._key} ".encode() + body).hexdigest().encode()

    def _delete_parts(self, name: str, kept: set[str]) -> None:
        for path in self.folder.glob(f"{name}-*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _write_part(path: Path, snapshot: Snapshot, piece: memoryview, pace: Callable[[int], None]) -> SavedPart:
    digest = text_hash()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
        for at in range(0, len(piece), _CHUNK):
            chunk = piece[at : at + _CHUNK]
            pace(len(chunk))
            digest.update(chunk)
            while len(chunk):
                chunk = chunk[file.write(chunk) :]
    return SavedPart.of(snapshot, path.name, len(piece), digest.hexdigest())


def _used_at(path: Path) -> float:
    """0 if there is no such file."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
