"""Files that several processes may write, replace and delete at the same time, mostly in the cache folder."""

import enum
import os
import secrets
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shared.errors import ConfigError

PART_SUFFIX = ".part"
"""The suffix of a file that is still being written."""
ABANDONED_SECONDS = 3600.0
"""A partial file that has not been modified for this long belongs to a process that was killed."""


class CacheFolder(enum.StrEnum):
    """The names of the folders in `user_cache_path("llama-duo")`, which also has the grown demo models."""

    ATTENTION = "attention"
    CONVERTED = "converted"
    EXACTNESS = "exactness"
    MEMORY = "memory"
    STEP_TIMES = "step-times"
    TRANSLATIONS = "translations"
    VOCABULARIES = "vocabularies"
    VOCABULARIES_OF_LEADS = "vocabularies-of-leads"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; its file is moved to `path` at the end, and deleted after
    an error.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Atomically write a file that only its owner can read; raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with written_whole(path) as part:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)


class FolderHold:
    """Marks a folder as in use. The mark lasts until `close` is called, nothing refers to this object, or the
    process ends.
    """

    def __init__(self, descriptor: int) -> None:
        self.close = weakref.finalize(self, os.close, descriptor)
        """Removes the mark."""


def hold_folder(folder: Path) -> FolderHold | None:
    """Mark a folder as used; None: there is no such folder, or the system cannot mark it."""
    try:
        return FolderHold(_locked(folder, exclusive=False))
    except (ImportError, OSError):
        return None


def is_held(folder: Path) -> bool:
    """Return whether a running program has marked the folder (`hold_folder`)."""
    try:
        os.close(_locked(folder, exclusive=True))
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        pass
    return False


def _locked(folder: Path, *, exclusive: bool) -> int:
    """Return the descriptor of a lock; raises BlockingIOError if another lock prevents it."""
    import fcntl  # noqa: PLC0415 - not on Windows

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def make_cache_folder(folder: Path) -> None:
    """Create a folder inside the cache folder; raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the cache folder {folder}: {error}") from error


def remove_oldest(folder: Path, n_kept: int) -> None:
    """Delete all files of a folder except the newest `n_kept`."""
    with suppress(FileNotFoundError):  # another process does the same
        for old in sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)[:-n_kept]:
            old.unlink()


def remove_abandoned(folder: Path, pattern: str = "*") -> None:
    """Delete partial files of processes that were killed."""
    for part in folder.glob(f"{pattern}{PART_SUFFIX}"):
        with suppress(OSError):  # another process may have deleted it, or still have it open on Windows
            if time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
                part.unlink()
