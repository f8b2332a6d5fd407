"""Remembers the models whose files are damaged, so that no process is started for them in vain."""

import asyncio
from pathlib import Path

from shared.errors import ModelLoadError
from shared.model_files.damaged_file import why_unusable
from shared.model_files.file_kind import parts_of

FileState = tuple[tuple[Path, int, int, int], ...]
"""For each part of a model: path, inode, size, and the time when its contents or permissions last changed."""


class UnusableFiles:
    """The models that could not be loaded because their files are not whole, until these files change."""

    def __init__(self) -> None:
        self._found: dict[Path, tuple[FileState, str]] = {}

    async def note(self, path: Path | None, reason: str) -> None:
        """Remember why a model could not be loaded, if its file is damaged; does nothing otherwise."""
        if path is not None and (state := await asyncio.to_thread(_state_if_damaged, path)):
            self._found[path] = state, reason

    def has(self, path: Path | None) -> bool:
        """Return whether the file was damaged when its model last failed."""
        return path in self._found

    async def reason(self, path: Path | None) -> str | None:
        """Return the remembered reason; None: there is none, or the file has changed."""
        if path is None or path not in self._found:
            return None
        state, reason = self._found[path]
        if await asyncio.to_thread(_state, path) == state:
            return reason
        self._found.pop(path, None)
        return None


def _state_if_damaged(path: Path) -> FileState | None:
    state = _state(path)  # before the files are read, which may change meanwhile
    try:
        for part, *_ in state or ():
            part.open("rb").close()
    except OSError:  # of the system, not of the file
        return None
    return state if state and any(why_unusable(part) for part, *_ in state) else None


def _state(path: Path) -> FileState | None:
    """Return the state of a model's files; None if a file is missing."""
    try:
        stats = [(part, part.stat()) for part in parts_of(path)]
    except (ModelLoadError, OSError):
        return None
    return tuple((part, each.st_ino, each.st_size, each.st_ctime_ns) for part, each in stats)
