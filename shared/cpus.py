"""Which CPU cores a program may use, and how many threads pay.

Knows Linux's affinity and topology files; elsewhere every core counts as usable and pinning is refused.
"""

import contextlib
import os
from pathlib import Path

from shared.errors import ConfigError

_TOPOLOGY = Path("/sys/devices/system/cpu")


def parse_cpus(text: str) -> frozenset[int]:
    """`"0-3,8"` → {0, 1, 2, 3, 8}, the notation of taskset and cgroups.

    Raises ConfigError for anything else.
    """
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            raise ConfigError(f"{text!r} is not a list of cores, as in 0-3,8") from None
        if low < 0 or high < low or high > 1 << 16:
            raise ConfigError(f"{text!r} is not a list of cores: {part.strip()!r} is not a range")
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def pin(cpus: frozenset[int]) -> None:
    """Run this process and its later children on these cores only; raises ConfigError if one is not allowed.

    Cores outside the current affinity are allowed: a pinned lead starts a back on other cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("--cpus needs Linux: this system cannot pin a process to cores")
    before = usable()
    with contextlib.suppress(OSError):  # raised if none is allowed; if some are, Linux uses those
        os.sched_setaffinity(0, cpus)
    granted = usable()
    if granted != cpus:
        os.sched_setaffinity(0, before)
        raise ConfigError(f"--cpus contains cores that this process may not use: {sorted(cpus - granted)}")


def usable() -> frozenset[int]:
    """The logical cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def n_physical() -> int:
    """Physical cores among the usable ones: llama.cpp gains nothing from a core's second thread."""
    return len({_siblings(cpu) for cpu in usable()})


def _siblings(cpu: int) -> str:
    try:
        return (_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
