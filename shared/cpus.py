"""The CPU cores that a program may use, and the useful number of threads.

Reads Linux's affinity and topology files and macOS's counts. On other systems, every core counts as usable
and physical. Only Linux can pin a process to cores.
"""

import contextlib
import ctypes
import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from shared.control_groups import own_groups
from shared.errors import ConfigError

_TOPOLOGY = Path("/sys/devices/system/cpu")
_INTEL_PERFORMANCE_CORES = Path("/sys/devices/cpu_core/cpus")
"""A file that exists only on Intel CPUs that also have efficiency cores."""
_CPUINFO = Path("/proc/cpuinfo")
_KINDS = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU ", "Features")
"""Lines of /proc/cpuinfo that begin with these words describe a core's model and features."""
_FAST = 0.5
"""An ARM core with less than this part of the fastest core's capacity is an efficiency core."""


def parse_cpus(text: str) -> frozenset[int]:
    """Parse the notation of taskset and cgroups: `"0-3,8"` → {0, 1, 2, 3, 8}. Raises ConfigError."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            raise ConfigError(f"{text!r} is not a list of cores such as 0-3,8") from None
        if low < 0 or high < low or high > 1 << 16:
            raise ConfigError(f"{text!r} is not a list of cores: {part.strip()!r} is not a range")
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def as_ranges(cores: Sequence[int]) -> str:
    """Return the cores in the notation of `parse_cpus`: `0-2,5`."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def kind() -> str:
    """Return the model and features of the cores. Two CPUs have equal results only if the same machine code
    takes the same branches on them.
    """
    try:
        first, _, _ = _CPUINFO.read_text(encoding="utf-8").partition("\n\n")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in first.splitlines() if line.startswith(_KINDS))


def pin(cpus: frozenset[int]) -> None:
    """Restrict this process and its later children to these cores; raises ConfigError if a core is not
    allowed.

    Cores outside the current affinity are allowed: a pinned lead starts a back on other cores.
    """
    if not can_pin():
        raise ConfigError("--cpus needs Linux: this system cannot pin a process to cores")
    before = usable()
    with contextlib.suppress(OSError):  # raised if none is allowed; if some are, Linux uses those
        os.sched_setaffinity(0, cpus)
    granted = usable()
    if granted != cpus:
        os.sched_setaffinity(0, before)
        raise ConfigError(f"this process may not use these cores of --cpus: {sorted(cpus - granted)}")


def usable() -> frozenset[int]:
    """Return the logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def load_average() -> float | None:
    """Return the mean number of busy threads in the last minute; None: the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def can_pin() -> bool:
    return hasattr(os, "sched_setaffinity")


def one_of_each_core() -> list[int]:
    """Return one logical core of each usable physical core, without efficiency cores.

    The number is limited to a container's CPU limit, and is at least one.
    """
    first: dict[str, int] = {}
    for cpu in sorted(_fast(usable())):
        first.setdefault(_siblings(cpu), cpu)
    cores = list(first.values())
    return cores[: max(1, int(min(len(cores), _quota())))]


def n_physical() -> int:
    """Return the number of usable physical cores, without efficiency cores.

    llama.cpp gains nothing from a core's second thread, and after each operation all threads wait for the
    slowest.
    """
    if platform.system() == "Darwin":
        return _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu") or len(usable())
    return len(one_of_each_core())


def _quota() -> float:
    """Return the CPU limit of this process in cores, as set for a container; infinite if there is none.

    If there were more threads than the limit, the kernel would stop all of them for most of each tenth of a
    second.
    """
    return min((_quota_of(*group) for group in own_groups("cpu")), default=math.inf)


def _quota_of(group: Path, is_v2: bool) -> float:
    try:
        if is_v2:
            maximum, period = (group / "cpu.max").read_text().split()
        else:
            maximum, period = ((group / f"cpu.cfs_{each}_us").read_text() for each in ("quota", "period"))
        return int(maximum) / int(period) if int(maximum) > 0 else math.inf
    except (OSError, ValueError):  # "max": no limit; or nothing to see
        return math.inf


def _fast(cpus: frozenset[int]) -> frozenset[int]:
    """Return `cpus` without efficiency cores, unless there are no others."""
    with contextlib.suppress(OSError, ConfigError):
        return cpus & parse_cpus(_INTEL_PERFORMANCE_CORES.read_text()) or cpus
    capacities = {cpu: _capacity(cpu) for cpu in cpus}
    enough = _FAST * max(capacities.values())
    return frozenset(cpu for cpu, capacity in capacities.items() if capacity >= enough)


def _capacity(cpu: int) -> int:
    """Return the speed of an ARM core relative to 1024; 0 if unknown."""
    try:
        return int((_TOPOLOGY / f"cpu{cpu}" / "cpu_capacity").read_text())
    except (OSError, ValueError):
        return 0


def _siblings(cpu: int) -> str:
    try:
        return (_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _sysctl(name: str) -> int | None:
    """Return a number that macOS's kernel reports; None: it does not know the name."""
    value, size = ctypes.c_int32(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int32))
    status: int = ctypes.CDLL(None).sysctlbyname(
        name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return value.value if status == 0 else None
