"""What one job may cost in a tokenizer process."""

import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1 << 20
STACK_BYTES = 128 * MEGABYTE
"""For the thread that tokenizes. std::regex, with which llama.cpp splits text for some models, takes up to
400 bytes for each character of a run: this is enough for 300,000. Only what is needed uses memory."""
_FIXED_HEAP_BYTES = 96 * MEGABYTE
_HEAP_BYTES_PER_BYTE = 40
SECONDS_PER_SECOND_AND_MEGABYTE = 0.5


@dataclass(frozen=True, slots=True)
class JobLimits:
    """cpu_seconds: of the process. heap_bytes: more than the process had before."""

    cpu_seconds: float
    heap_bytes: int

    @classmethod
    def of(cls, n_bytes: int, base_seconds: float) -> "JobLimits":
        """For a job of `n_bytes`; an empty one may take `base_seconds`."""
        megabytes = n_bytes / MEGABYTE
        return cls(
            base_seconds * (1 + SECONDS_PER_SECOND_AND_MEGABYTE * megabytes),
            _FIXED_HEAP_BYTES + _HEAP_BYTES_PER_BYTE * n_bytes,
        )


def limit_time(seconds: float) -> None:
    """End this process by SIGPROF after so many seconds of CPU time; 0: no more."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def forbid_core_dumps() -> None:
    """A process that is killed by a signal must not leave clients' texts in a file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_data(n_bytes: int) -> None:
    """Let allocations fail once the process has reserved so many bytes; 0: any number."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes or hard, hard))


def reserved_data() -> int:
    """What `limit_data` limits, in bytes; 0 where that is not known (macOS)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = dict(line.split(":", 1) for line in status.read_text("ascii", "replace").splitlines())
    return int(lines["VmData"].split()[0]) * 1024


def peak_memory() -> int:
    """The most memory that the process has used so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
