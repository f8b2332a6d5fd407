"""How much memory a process may still take: what the machine has left, or its container, if that is less.

A container (or a service with `MemoryMax`) sees all memory of the machine; who takes more than its control
group allows is killed. Both versions of control groups are read, see the kernel's cgroup-v2.rst and
cgroup-v1/memory.rst.
"""

from collections.abc import Iterator
from pathlib import Path

import psutil

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
MEMORY_SHARE = 0.25
"""The most of the free memory that states to return to may take; and stored texts, of what is left."""


def free_memory(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """In bytes."""
    return min([psutil.virtual_memory().available, *_left(groups, own)])


def _left(groups: Path, own: Path) -> Iterator[int]:
    """What each control group that this process is in has left; none where there are no limits."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _left_of(groups, path, ("memory.max", "memory.current", "file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
            yield from _left_of(groups / "memory", path, names)


def _left_of(root: Path, path: str, names: tuple[str, str, str]) -> Iterator[int]:
    """The same for a group and those above it. A container may see its own as the root, whatever its path."""
    limit, used, cache = names
    group = root / path.lstrip("/")
    for folder in (group, *group.parents):
        try:
            most = int((folder / limit).read_text())
            n_used = int((folder / used).read_text())
            counts = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
            yield max(0, most - n_used + int(counts[cache]))  # cached files give way
        except (OSError, ValueError, KeyError):  # "max": no limit; or nothing to see
            pass
        if folder == root:
            return
