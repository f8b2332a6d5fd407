"""The files of texts: written, read and checked, and deleted when they take too much space.

The file of a text begins with three lines: the format and the key of the program that computes the text
(`shared.llama.start_key`), a digest of the manifest, and the manifest (a `SavedText`). Its parts follow, in
order, or are separate files. Data is used only if its digest matches.

A text that a client saves under a name (`--slot-save-path`) is one file. Texts of `--cache-disk` grow. Their
folder `FOLDER/texts/KEY/`, with a KEY for each way to compute them, has NAME.text and a file for each part of
each text. A part is written once, under a unique name, before the manifest that names it. So after a crash,
or with several writers, every text is complete.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from shared.cache_edits import Snapshot
from shared.cached_files import ABANDONED_SECONDS, write_private, written_whole
from shared.diagnostics.findings import count
from shared.slot_cache import SavedPart, SavedText

log = logging.getLogger("engine")

_FORMAT, _EARLIER = b"llama-duo text 2 ", b"llama-duo slot 1 "
_MAX_LINE_BYTES = 1 << 30
_MANIFEST, _EARLIER_MANIFEST = ".text", ".json"
_OURS = re.compile(r"([0-9a-f]{24})(\.text|\.json|-[0-9a-f]{12}\.kv|\.(?:text|json)\.[0-9a-f]{8}\.part)")
_CHUNK = 1 << 20
_DIGEST_BYTES = 16
_DAMAGED = "is damaged or cut off"
_TICK_SECONDS = 0.02
"""Two changes of a folder within this time may give it the same date, because Linux counts in ticks."""

TextPieces = Sequence[tuple[Snapshot, memoryview | SavedPart]]
"""All snapshots of a text, each with its bytes, or with its place on disk if it was written before."""
Buffers = Sequence[tuple[Snapshot, memoryview]]
"""All snapshots of a text, each with memory for its bytes."""


class DamagedTextError(Exception):
    """A file is damaged, or of a lead with another start key. The message is to follow the file's name."""


def _head(text: SavedText, key: str) -> bytes:
    manifest = f"{text.model_dump_json()}\n".encode()
    return b"%s%s\n%s\n%s" % (_FORMAT, key.encode(), text_hash(manifest).hexdigest().encode(), manifest)


def _read_head(file: BinaryIO, key: str) -> SavedText:
    """Read the description at the beginning of a file; raises OSError, DamagedTextError."""
    first = file.readline(len(_FORMAT) + 64)
    if first.startswith(_EARLIER):
        raise DamagedTextError("was saved by an earlier version of llama-duo. Send its text again")
    if not first.startswith(_FORMAT):
        raise DamagedTextError("is not a saved text")
    if first[len(_FORMAT) :] != f"{key}\n".encode():
        raise DamagedTextError(
            "was saved with another model, other options, or another version of llama.cpp. "
            "Send its text again"
        )
    digest, manifest = file.readline(64), file.readline(_MAX_LINE_BYTES)
    if digest != f"{text_hash(manifest).hexdigest()}\n".encode():
        raise DamagedTextError(_DAMAGED)
    try:
        text = SavedText.model_validate_json(manifest)
    except ValueError as error:
        raise DamagedTextError(_DAMAGED) from error
    n_after = sum(part.size for part in text.parts if not part.file)
    if file.tell() + n_after != os.fstat(file.fileno()).st_size:
        raise DamagedTextError(_DAMAGED)
    return text


def read_manifest(path: Path, key: str) -> SavedText:
    """Read the manifest of a text; raises OSError, DamagedTextError."""
    with path.open("rb") as file:
        return _read_head(file, key)


def write_named(path: Path, key: str, text: SavedText, pieces: TextPieces) -> int:
    """Write `text` with the parts `pieces` as one file, atomically; return its size in bytes.

    All pieces must have their bytes. Raises OSError.
    """
    views = [piece for _, piece in pieces if isinstance(piece, memoryview)]
    parts = tuple(
        SavedPart.of(each, "", len(view), text_hash(view).hexdigest())
        for (each, _), view in zip(pieces, views, strict=True)
    )
    with written_whole(path) as part:
        with _new_file(part) as file:
            _write(file, _head(text.model_copy(update={"parts": parts}), key))
            for view in views:
                _write(file, view)
        return part.stat().st_size


def read_named(path: Path, key: str, text: SavedText, into: Buffers) -> int:
    """Fill `into` with the parts of `text`, which `read_manifest` found in the file; return the file's size.

    Raises OSError, and DamagedTextError, also if the file now has another text.
    """
    with path.open("rb") as file:
        if _read_head(file, key) != text:
            raise DamagedTextError("was replaced while it was read")
        for part, (_, view) in zip(text.parts, into, strict=True):
            _read_part(file, part, view)
        return file.tell()


class FolderNews(NamedTuple):
    """Texts that other processes wrote, least recently used first, and the names of deleted texts."""

    texts: list[SavedText]
    gone: set[str]


def new_name() -> str:
    """Return a unique name for a text that is not on disk yet."""
    return secrets.token_hex(12)


class TextFiles:
    """The texts of `--cache-disk`. One thread may write while another calls `look` and others read."""

    def __init__(self, folder: Path, key: str, n_max: int) -> None:
        """n_max: the maximum number of bytes in `folder`, over all KEYs. Raises OSError."""
        self.n_max = n_max
        self._root, self._key = folder / "texts", key
        self.folder = self._root / key
        self._changed_at = 0
        self._seen: dict[str, float] = {}  # name → when its manifest was written or used, while it is there
        self._writing = ""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._delete_earlier()

    def _delete_earlier(self) -> None:
        """Delete files of an earlier format; the model will read their texts again."""
        earlier = [path for path in self._root.glob(f"*/*{_EARLIER_MANIFEST}") if _OURS.fullmatch(path.name)]
        for path in earlier:
            for each in (path, *path.parent.glob(f"{path.stem}-*")):
                each.unlink(missing_ok=True)
        if earlier:
            log.info("cache on disk: deleted %s of an earlier format", count(len(earlier), "text"))

    def look(self) -> FolderNews:
        """Return the changes since the last call; do not call it twice at the same time.

        Raises OSError; a damaged text is deleted.
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
                texts.append(read_manifest(self._manifest(name), self._key))
            except FileNotFoundError:  # another lead has deleted it
                continue
            except (OSError, DamagedTextError) as error:
                log.warning("deleted a text on disk: %s %s", self._manifest(name), error)
                self.delete(name)
        return FolderNews(texts, gone)

    def _manifests(self) -> dict[str, float]:
        """Return the names of the texts in the folder, and when they were last used."""
        found = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if (ours := _OURS.fullmatch(entry.name)) and ours[2] == _MANIFEST:
                    with contextlib.suppress(FileNotFoundError):
                        found[ours[1]] = entry.stat().st_mtime
        return found

    def write(self, text: SavedText, pieces: TextPieces, pace: Callable[[int], None]) -> SavedText:
        """Write `text` with the parts `pieces`; calls `pace` with the number of bytes about to be written.

        Raises OSError, after which nothing has changed: FileNotFoundError if earlier parts are gone.
        """
        parts: list[SavedPart] = []
        new: list[Path] = []
        self._writing = text.name
        try:
            self.touch(text.name)
            self.shrink(sum(len(piece) for _, piece in pieces if isinstance(piece, memoryview)))
            for snapshot, piece in pieces:
                if isinstance(piece, memoryview):
                    new.append(self.folder / f"{text.name}-{secrets.token_hex(6)}.kv")
                    with _new_file(new[-1]) as file:
                        digest = _write(file, piece, pace)
                    parts.append(SavedPart.of(snapshot, new[-1].name, len(piece), digest))
                else:
                    (self.folder / piece.file).stat()
                    parts.append(piece)
            text = text.model_copy(update={"parts": tuple(parts)})
            write_private(self._manifest(text.name), _head(text, self._key))
            self._seen[text.name] = _used_at(self._manifest(text.name))
        except BaseException:
            for path in new:
                path.unlink(missing_ok=True)
            raise
        finally:
            self._writing = ""
        self._delete_parts(text.name, {part.file for part in parts})
        return text

    def read(self, text: SavedText, into: Buffers) -> None:
        """Read a text's parts into the buffers `into`. Raises OSError, DamagedTextError."""
        for part, (_, view) in zip(text.parts, into, strict=True):
            with (self.folder / part.file).open("rb", buffering=0) as file:
                _read_part(file, part, view)
                if file.read(1):
                    raise DamagedTextError(_DAMAGED)

    def touch(self, name: str) -> None:
        """Mark a text as used just now."""
        with contextlib.suppress(OSError):
            os.utime(self._manifest(name))
            self._seen[name] = _used_at(self._manifest(name))

    def delete(self, name: str) -> None:
        """Delete a text, if it exists. Raises OSError."""
        self._manifest(name).unlink(missing_ok=True)
        self._delete_parts(name, set())

    def shrink(self, n_more: int) -> None:
        """Delete texts, of any KEY, until `n_more` bytes fit; and files that belong to no text."""
        texts: dict[str, dict[Path, os.stat_result]] = {}
        for path in self._root.glob("*/*"):
            if ours := _OURS.fullmatch(path.name):
                with contextlib.suppress(OSError):  # another lead has deleted it
                    texts.setdefault(str(path.parent / ours[1]), {})[path] = path.stat()
        n_bytes = n_more + sum(stat.st_size for files in texts.values() for stat in files.values())
        used = {name: _used_at(Path(f"{name}{_MANIFEST}")) for name in texts}
        for name in sorted(texts, key=lambda each: used[each]):
            stats = texts[name].values()
            if not used[name] and time.time() - max(stat.st_mtime for stat in stats) < ABANDONED_SECONDS:
                continue  # it is being written
            if used[name] and n_bytes <= self.n_max:
                break
            for path in sorted(texts[name], key=lambda each: each.suffix != _MANIFEST):
                path.unlink(missing_ok=True)
            n_bytes -= sum(stat.st_size for stat in stats)

    def _manifest(self, name: str) -> Path:
        return self.folder / f"{name}{_MANIFEST}"

    def _delete_parts(self, name: str, kept: set[str]) -> None:
        for path in self.folder.glob(f"{name}-*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)


def _write(file: BinaryIO, content: bytes | memoryview, pace: Callable[[int], None] = lambda _: None) -> str:
    """Write the content in chunks; return its digest."""
    digest, view = text_hash(), memoryview(content)
    for at in range(0, len(view), _CHUNK):
        chunk = view[at : at + _CHUNK]
        pace(len(chunk))
        digest.update(chunk)
        while len(chunk):
            chunk = chunk[file.write(chunk) :]
    return digest.hexdigest()


def _read_part(file: BinaryIO, part: SavedPart, into: memoryview) -> None:
    digest, n_read = text_hash(), 0
    while n := file.readinto(into[n_read : n_read + _CHUNK]):  # type: ignore[attr-defined]  # all binary files do
        digest.update(into[n_read : n_read + n])
        n_read += n
    if n_read != part.size or digest.hexdigest() != part.digest:
        raise DamagedTextError(_DAMAGED)


def text_hash(content: bytes | memoryview = b"") -> "hashlib.blake2b":
    """Return the hash that digests are computed with."""
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES)


def _used_at(path: Path) -> float:
    """Return the time of the last use; 0 if there is no such file."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
