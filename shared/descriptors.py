"""File descriptors: this process's limit, and a reserve for operations that must not fail."""

import contextlib
import os
import resource
from collections.abc import Iterator

_ENOUGH = 1 << 14
"""The wanted limit. It bounds the memory of connections: each takes 4 KB when idle, and up to 64 KB more in a
request.
"""
_MACOS_MAX = 10_240
"""The maximum on macOS (OPEN_MAX): macOS refuses more, although it reports no limit."""


def raise_limit() -> int:
    """Raise the descriptor limit of this process and its children as far as possible; return the
    new limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_ENOUGH, _MACOS_MAX):
        maximum = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < maximum:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, hard))
                break
    return limit()


def limit() -> int:
    """Return the descriptor limit of this process. Every descriptor is below it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft


def n_open() -> int:
    try:
        return len(os.listdir("/dev/fd")) - 1  # noqa: PTH208 - without objects; one is open for this look
    except OSError:
        return limit()


class SpareDescriptors:
    """A reserve of `n` descriptors, for an operation that must work when all others are in use."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._held: list[int] = []
        self._hold()

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Release the reserve within this context; afterwards reserve as many descriptors as are
        available.
        """
        self.close()
        try:
            yield
        finally:
            self._hold()

    def close(self) -> None:
        """Release the reserve for good."""
        while self._held:
            os.close(self._held.pop())

    def _hold(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._held) < self._n:
                self._held.append(os.open(os.devnull, os.O_RDONLY))
