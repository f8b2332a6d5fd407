"""Anonymous memory shared by several processes, and its allocation."""

import collections
import mmap
import os
import secrets
import sys
import weakref
from bisect import insort

from shared.errors import ConfigError

_ALIGNMENT = 64


class Stored:
    """An allocated part of a `SharedMemory`; it is freed when this object is deleted."""

    def __init__(self, offset: int, n_bytes: int) -> None:
        self.offset, self.n_bytes = offset, n_bytes


class SharedMemory:
    """Memory that is allocated in a ring, so that a freed part keeps its contents for a while.

    A process may thus still read a part that was freed a moment ago.
    """

    def __init__(self, n_bytes: int) -> None:
        """Pages take memory once they are written. Raises ConfigError."""
        self.n_bytes = n_bytes
        self.descriptor = _anonymous(n_bytes)
        self._map = mmap.mmap(self.descriptor, n_bytes)
        self._taken: list[tuple[int, int]] = []  # sorted: from, to
        self._freed: collections.deque[tuple[int, int]] = collections.deque()  # appended to by finalizers
        self._at = 0

    def store(self, data: bytes) -> Stored | None:
        """Copy `data` to a new part of the memory; None: there is no room."""
        while self._freed:
            self._taken.remove(self._freed.popleft())
        size = -(-max(len(data), 1) // _ALIGNMENT) * _ALIGNMENT
        offset = self._find(size)
        if offset is None:
            return None
        self._map[offset : offset + len(data)] = data
        place = (offset, offset + size)
        insort(self._taken, place)
        self._at = place[1]
        stored = Stored(offset, len(data))
        weakref.finalize(stored, self._freed.append, place).atexit = False
        return stored

    def read(self, stored: Stored) -> bytes:
        """Return the bytes of a part."""
        return self._map[stored.offset : stored.offset + stored.n_bytes]

    def close(self) -> None:
        """Close this process's mapping; other processes keep theirs."""
        self._map.close()
        os.close(self.descriptor)

    def _find(self, size: int) -> int | None:
        """Return the start of the first gap after the last allocation, or else of the first gap of all."""
        ends = [0, *(end for _, end in self._taken)]
        starts = [*(start for start, _ in self._taken), self.n_bytes]
        gaps = list(zip(ends, starts, strict=True))
        later = [max(start, self._at) for start, end in gaps if end - max(start, self._at) >= size]
        return next(iter([*later, *(start for start, end in gaps if end - start >= size)]), None)


def _anonymous(n_bytes: int) -> int:
    """Return a descriptor of memory without a name."""
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("images")
        elif sys.platform == "darwin":
            import _posixshmem  # noqa: PLC0415 - what multiprocessing.shared_memory uses, without its names

            name = f"/{secrets.token_hex(8)}"
            descriptor = _posixshmem.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            _posixshmem.shm_unlink(name)
        else:
            raise ConfigError("--mmproj: this system cannot share memory between processes")
        os.ftruncate(descriptor, n_bytes)
    except OSError as error:
        raise ConfigError(f"--image-cache: cannot allocate memory for images: {error}") from error
    return descriptor
