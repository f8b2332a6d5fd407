"""Real leads and backs as processes: started, stopped, killed and frozen."""

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.parts.processes import Program, start_back
from tests.python_runs import run_python

F32_CACHE = ("--cache-type-k", "f32", "--cache-type-v", "f32")
"""The precision of the weights, with which drafts and other batches do not change a text."""
LEAD = (
    *("--threads", "1", "--parallel", "4", "--no-calibrate"),
    *("--no-ngram", "--suffix-memory", "0"),
    *F32_CACHE,
)
"""No calibration: each engine would time its steps for a second. `bench faults` and `lead generate` do."""
BACK = ("--threads", "1")
READY = r" ready: \d+ slots"
"""The log line of an engine that is ready. Engines for images or vectors write other lines."""


def engine_of(lead: Program) -> int:
    """The process id of a lead's engine."""
    return _child_of(lead, b"lead.engine")


def tokenizer_of(lead: Program) -> int:
    """The process id of a lead's process that forks tokenizers."""
    return _child_of(lead, b"shared.fork_server")


def local_back_of(lead: Program) -> int:
    """The process id of a lead's own back."""
    return _child_of(lead, b"back")


def _child_of(lead: Program, module: bytes) -> int:
    pid = lead.process.pid
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    names = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    (found,) = (child for child, name in names.items() if module in name.split(b"\0"))
    return found


@contextmanager
def frozen_engine(lead: Program) -> Iterator[None]:
    """While this context lasts, the engine does no step."""
    engine = engine_of(lead)
    os.kill(engine, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine, signal.SIGCONT)


def wait_for_end(pid: int, seconds: float = 240.0) -> bool:
    """Return whether the process with this id ends in time. It need not be a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([descriptor], [], [], seconds)
    finally:
        os.close(descriptor)
    return bool(readable)


@contextmanager
def back_of(lead: Program, url: str, name: str, *arguments: str) -> Iterator[Program]:
    """A connected back. When the context ends, the lead has noticed that it is gone."""
    since = lead.n_lines()
    with start_back(url, "--name", name, *BACK, *arguments) as back:
        yield back
    lead.wait_for(rf"back {name} .*left", since=since)


def kill(program: Program) -> None:
    """Send SIGKILL and wait until the program has ended."""
    program.signal(signal.SIGKILL)
    program.process.wait()


def run_to_end(*command: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `python -m command`, which has to end with this status."""
    done = run_python("-m", *command, timeout=280)
    assert done.returncode == status, done.stdout + done.stderr
    return done
