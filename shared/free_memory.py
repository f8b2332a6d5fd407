"""The memory available to a process: the machine's memory, or its container's memory if that is less.

A process in a container (or a service with `MemoryMax`) sees all memory of the machine, but is killed if it
uses more than its control group allows.
"""

from collections.abc import Iterator
from pathlib import Path

import psutil

from shared.control_groups import GROUPS, OWN, own_groups

_FILES = {
    True: ("memory.max", "memory.current", "file"),
    False: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
}
"""For control groups of version 2 (True) and 1 (False): the files with the limit and the usage, and the key
for cached files in memory.stat.
"""
MEMORY_SHARE = 0.25
"""The maximum share of free memory for kept states. Stored texts may take the same share of the rest."""


def free_memory(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return the available memory in bytes."""
    return min([psutil.virtual_memory().available, *_left(groups, own)])


def _left(groups: Path, own: Path) -> Iterator[int]:
    """Yield the memory left in each control group of this process; empty if there are no limits."""
    for folder, is_v2 in own_groups("memory", groups, own):
        limit, used, cache = _FILES[is_v2]
        try:
            maximum = int((folder / limit).read_text())
            n_used = int((folder / used).read_text())
            counts = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
            yield max(0, maximum - n_used + int(counts[cache]))  # cached files give way
        except (OSError, ValueError, KeyError):  # "max": no limit; or nothing to see
            pass
