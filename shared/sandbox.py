"""Forked processes that work on what clients send: what they know of this machine, and what they may take.

Native code reads a client's text there, for as long and with as much memory as it likes. So the kernel ends a
process that goes too far: nothing in native code can delay that. `lead.tokenizer` and
`shared.sampling.grammar_server` each load a vocabulary, then fork the processes that do the work.
"""

import contextlib
import gc
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

MEGABYTE = 1 << 20
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|PROXY", re.IGNORECASE)
"""A proxy's URL may have a password in it; only what downloads models needs one."""
_MOST_GROWTH_BYTES = 32 * MEGABYTE
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",  # a vocabulary needs no GPU, and each process would reserve memory there
    "HIP_VISIBLE_DEVICES": "",
    "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
    "GGML_NO_BACKTRACE": "1",  # ggml would start a debugger, to show in the log where memory ran out
}


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a child process may see; it gets no key that it is not given for its own use."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name)}


def sandbox_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that forks."""
    return without_secrets(environment) | _ENVIRONMENT


def share_memory() -> None:
    """Before the first fork: what the garbage collector leaves alone stays shared with all of them."""
    gc.collect()
    gc.freeze()


def fork(work: Callable[[], None], unwanted: Iterable[int] = ()) -> int:
    """Do `work` in a new process without the descriptors `unwanted`; returns its id.

    It ends with status 0 when the work is done, with 1 if that raises.
    """
    if pid := os.fork():
        return pid
    status = 1
    try:
        for descriptor in unwanted:
            os.close(descriptor)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would have clients' texts in it
        work()
        status = 0
    finally:
        os._exit(status)


class Limits:
    """What this process takes, from now on."""

    def __init__(self) -> None:
        self._reserved, self._peak = _reserved_data(), _peak_memory()

    @property
    def has_grown(self) -> bool:
        """Whether it should end: the next one is forked in milliseconds."""
        return _peak_memory() > self._peak + _MOST_GROWTH_BYTES

    @contextlib.contextmanager
    def time(self, seconds: float) -> Iterator[None]:
        """End this process by SIGPROF if it takes more CPU time, which is fair on a busy machine, too."""
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def set_memory(self, n_bytes: int) -> None:
        """Let allocations fail once the process has `n_bytes` more than at first, where the system counts."""
        if self._reserved:
            wanted, (_, hard) = self._reserved + n_bytes, resource.getrlimit(resource.RLIMIT_DATA)
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _reserved_data() -> int:
    """What RLIMIT_DATA limits, in bytes; 0 where that is not known (macOS)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = dict(line.split(":", 1) for line in status.read_text("ascii", "replace").splitlines())
    return int(lines["VmData"].split()[0]) * 1024


def _peak_memory() -> int:
    """The most memory that the process has used so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
