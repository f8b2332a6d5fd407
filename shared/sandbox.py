"""Worker processes for native code that reads clients' data, and may crash or never end.

A fork server (`shared.fork_server`) loads what all workers need, such as a vocabulary, and never sees
clients' data. It forks workers that do one task at a time, each over its own connection. The kernel ends a
worker that takes too much CPU time or memory; native code cannot delay that.

`Sandbox` is the client's side. It never waits for a worker, and restarts the fork server when it has ended;
running tasks continue meanwhile. Several processes may use one fork server (`share`).
"""

import contextlib
import logging
import os
import pickle
import re
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Protocol

from shared.python_child import ChildProcess, child_command, child_environment

if sys.platform != "win32":
    import resource

log = logging.getLogger("sandbox")

STATUS = struct.Struct("!i")
"""The status in which a worker has ended, as `Popen.returncode` has it."""
KILL = b"K"
JOBS, FOLLOW = b"j", b"f"
"""Kinds of tasks: a tokenizer's jobs, and following a grammar (`shared.sampling.grammar_worker`)."""
MEGABYTE = 1 << 20
_MAX_GROWTH_BYTES = 32 * MEGABYTE
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|PROXY", re.IGNORECASE)
"""Matches the names of variables that may contain secrets. A proxy's URL may contain a password; only
programs that download models need a proxy.
"""
NO_GPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "VK_DRIVER_FILES": os.devnull,
    "VK_ICD_FILENAMES": os.devnull,  # what older loaders of Vulkan drivers read instead
}
"""The environment of a process that needs no GPU: each process that opens a GPU takes memory there."""
_ENVIRONMENT = NO_GPU | {
    "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
    "GGML_NO_BACKTRACE": "1",  # ggml would start a debugger, to show in the log where memory ran out
}
_STOP_SECONDS = 2.0


CAN_FORK = hasattr(os, "fork")
"""True if there can be sandboxes: not on Windows."""


class WorkerLimits:
    """Limits on a worker while it does a task."""

    def __init__(self) -> None:
        self._reserved, self._peak = _reserved_data(), _peak_memory()

    @property
    def has_grown(self) -> bool:
        """True if the process should end because its memory has grown; forking another one takes
        milliseconds.
        """
        return _peak_memory() > self._peak + _MAX_GROWTH_BYTES

    @contextlib.contextmanager
    def time(self, seconds: float) -> Iterator[None]:
        """End the process by SIGPROF if it uses more CPU time than `seconds` within the context.

        A limit on CPU time is fair even on a busy machine.
        """
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    @contextlib.contextmanager
    def memory(self, n_bytes: int) -> Iterator[None]:
        """Make allocations fail once the process has `n_bytes` more memory than at first, on systems that
        count them.
        """
        before = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if self._reserved:
            wanted = self._reserved + n_bytes
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)


class TaskHandler(Protocol):
    """Does the tasks of one kind in workers. It is created in the fork server; workers have copies of it."""

    def prepare(self) -> None:
        """Load what only this kind of task needs; called once in the fork server, before the first task."""

    def warm_up(self) -> None:
        """Prepare a worker for its tasks; called once in each worker."""

    def do(self, connection: Connection, limits: WorkerLimits) -> None:
        """Do a task over `connection`. EOFError and OSError mean that the client has left."""


class Program(Protocol):
    """The program that a fork server runs. It is pickled."""

    def load(self) -> Mapping[bytes, TaskHandler]:
        """Load what all workers need; return the handler of each kind of task, by a name of one byte.

        After a ModelLoadError the fork server ends without a message.
        """


class Task(NamedTuple):
    """A client's side of one task. connection: to the worker that does it.

    supervision: to the fork server, which writes one byte when the worker begins. If the worker ends before
    it is free again, the server writes its `STATUS`; without a status, the fork server itself has ended.
    Write `KILL` to have the worker killed.
    """

    connection: socket.socket
    supervision: socket.socket


class Sandbox:
    """A fork server and its workers. It starts with the first task, or with `start`."""

    def __init__(self, program: Program, control: socket.socket | None = None) -> None:
        """control: the result of `share` in another process, whose fork server is used until that server
        ends.
        """
        self._program = program
        self._name = type(program).__module__
        self._process: ChildProcess | None = None
        self._control = control

    @property
    def pid(self) -> int | None:
        """The process id of the fork server while it runs."""
        return self._process.pid if self._process and self._process.is_running else None

    def share(self) -> int:
        """Return a descriptor with which another process can use this fork server; the fork server's program
        must know the tasks of that process.
        """
        if self.pid is None:
            self.close()
            self.start()
        assert self._control
        return self._control.fileno()

    def start(self) -> None:
        """Start the fork server before the first task needs it, because loading takes a while."""
        self._control, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as program:
            pickle.dump(self._program, program)
            program.seek(0)
            self._process = ChildProcess(
                child_command("shared.fork_server", self._name, str(theirs.fileno())),
                descriptors=[theirs.fileno()],
                stdin=program,
                env=without_secrets(child_environment()) | _ENVIRONMENT,
            )

    def open(self, kind: bytes) -> Task:
        """Open a task of a kind, which starts as soon as a worker is free; raises OSError.

        If the task's `supervision` gives EOF before the task begins, the fork server has ended and the task
        is lost: open another task.
        """
        connection, theirs = socket.socketpair()
        supervision, supervised = socket.socketpair()
        with theirs, supervised, contextlib.ExitStack() as unused:
            unused.enter_context(connection)
            unused.enter_context(supervision)
            for _ in range(2):
                if self._control is None:
                    self.start()
                assert self._control
                try:
                    socket.send_fds(self._control, [kind], [theirs.fileno(), supervised.fileno()])
                except (BrokenPipeError, ConnectionResetError):
                    log.error("the fork server of %s ended. Starting it again", self._name)  # noqa: TRY400 - expected
                    self.close()
                else:
                    unused.pop_all()
                    return Task(connection, supervision)
            raise ConnectionError("the fork server ends as soon as it is started")

    def kill(self) -> None:
        """Kill a fork server that does not answer. The next task starts it again."""
        if self._process:
            self._process.end_within(0.0)

    def close(self) -> None:
        """End the fork server, which kills its workers. Waits at most some seconds."""
        if self._control:
            self._control.close()
        if self._process:
            self._process.end_within(_STOP_SECONDS)
        self._process = self._control = None


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a child process may see: all except those whose names suggest a secret."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name)}


def _reserved_data() -> int:
    """Return the bytes that RLIMIT_DATA counts; 0 if unknown (macOS)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = dict(line.split(":", 1) for line in status.read_text("ascii", "replace").splitlines())
    return int(lines["VmData"].split()[0]) * 1024


def _peak_memory() -> int:
    """Return the most memory that the process has used so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
