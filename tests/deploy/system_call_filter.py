"""Run a program under a unit's system call filter, as systemd does.

Usage: `python system_call_filter.py UNIT COMMAND…`. Groups of calls are systemd's own, as
`systemd-analyze syscall-filter` lists them. libseccomp makes the filter.
"""

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_SET_NO_NEW_PRIVILEGES = 38
_UNKNOWN = -1
"""libseccomp's result for a name that is not a system call on this machine."""


def allowed(unit: Path) -> set[str]:
    """The system calls that the unit's `SystemCallFilter=` lines allow."""
    calls: set[str] = set()
    for line in unit.read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "SystemCallFilter":
            named = {call for name in value.removeprefix("~").split() for call in _expand(name)}
            calls = calls - named if value.startswith("~") else calls | named
    return calls


def _expand(name: str) -> Iterator[str]:
    if not name.startswith("@"):
        yield name
        return
    command = ["systemd-analyze", "syscall-filter", name]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for member in map(str.strip, lines[1:]):
        if member and not member.startswith("#"):
            yield from _expand(member)


def restrict(calls: set[str]) -> None:
    """From now on every other system call of this process and its children fails with EPERM."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_ERRNO | errno.EPERM))
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number != _UNKNOWN:
            library.seccomp_rule_add(context, _ALLOW, number, 0)
    ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if library.seccomp_load(context) != 0:
        raise OSError(ctypes.get_errno(), "seccomp_load")


if __name__ == "__main__":
    restrict(allowed(Path(sys.argv[1])))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - that is its purpose
