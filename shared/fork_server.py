"""The fork server of a `shared.sandbox.Sandbox`: `python -m shared.fork_server NAME DESCRIPTOR`.

It loads the program that is pickled on its standard input. Then it forks workers, and gives them the tasks
that arrive over the inherited socket. A task is one byte (its kind) and two descriptors
(`shared.sandbox.Task`), of which a worker gets the first. NAME is shown in lists of processes.
"""

import contextlib
import ctypes
import functools
import gc
import os
import pickle
import resource
import selectors
import signal
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection

from shared.descriptors import raise_limit
from shared.errors import ModelLoadError
from shared.exits import end_with_parent_only
from shared.lifeline import inherit_lifeline
from shared.sandbox import KILL, MEGABYTE, STATUS, Program, TaskHandler, WorkerLimits

_STACK_BYTES = 128 * MEGABYTE
"""The stack size of the working thread. std::regex, with which llama.cpp splits text for some models, takes
up to 400 bytes for each character of a run: the stack is large enough for 300,000 characters. Only used pages
take memory.
"""
_TASK_MEMORY = 1024 * MEGABYTE
"""The number of bytes that a task may take if its handler sets no other limit."""
_N_IDLE = 2
"""The number of idle workers kept for the next tasks: forking takes ten times as long as a usual task."""
_REST_SECONDS = 0.05
"""The wait before a worker is forked in advance, so that the fork does not slow the latest task."""


def main() -> None:
    """Serve until the other end of the socket is closed."""
    end_with_parent_only()
    raise_limit()  # its parent may have few descriptors while it starts this
    gc.disable()  # what is loaded here stays, as in `shared.program_start.import_program`
    program: Program = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent, a program with the same rights
    try:
        handlers = program.load()
    except ModelLoadError:
        return  # the parent, which loads the same file, says why
    with socket.socket(fileno=int(sys.argv[2])) as control:
        ForkServer(control, handlers).run()


def _share() -> None:
    """Exclude existing objects from garbage collection, so that workers share the memory of these objects."""
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # glibc keeps what was needed only to load, a tenth
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(eq=False, slots=True)
class _ForkedWorker:
    """A worker process. supervision: the fork server's end of the socket that supervises the worker's task,
    while the client needs it.
    """

    pid: int
    kind: bytes
    tasks: socket.socket
    supervision: socket.socket | None = None
    lacks_something: bool = False
    """True if the fork server has loaded more since it forked this worker."""


class ForkServer:
    """Forks workers, each of which does one task at a time.

    The server has a socket to each worker. A worker sends a byte when it is free again, and ends when the
    socket is closed.
    """

    def __init__(self, control: socket.socket, handlers: Mapping[bytes, TaskHandler]) -> None:
        self._control = control
        self._handlers = handlers
        self._workers: set[_ForkedWorker] = set()
        self._idle = defaultdict[bytes, list[_ForkedWorker]](list)
        """The idle workers by the kind of their tasks; a kind without a list has not been prepared yet."""
        self._expected: bytes | None = None
        """The kind for which to fork a worker in advance."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def run(self) -> None:
        """Pass tasks to workers until the other end of `control` is closed; then end all workers."""
        is_open = True
        while is_open:
            kind = self._expected
            forks = kind is not None and not self._idle[kind]
            events = self._selector.select(_REST_SECONDS if forks else None)
            if kind is not None and forks and not events:
                self._fork(kind)
            for key, _ in events:
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._control:
                    is_open = self._hand_over()
                elif key.fileobj.fileno() >= 0:  # not closed by an event before
                    key.data()
        for worker in self._workers:
            os.kill(worker.pid, signal.SIGKILL)  # not reaped yet, so no other process has its id
            reap(worker.pid)

    def _hand_over(self) -> bool:
        """Give the next task to a worker; return False if there will be no more tasks."""
        kind, descriptors, _, _ = socket.recv_fds(self._control, 1, 2)
        if not kind:
            return False
        self._prepare(kind)
        connection, supervision = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        with connection:
            for _ in range(_N_IDLE + 1):
                if not self._idle[kind]:
                    self._fork(kind, [connection.fileno(), supervision.fileno()])
                worker = self._idle[kind].pop()
                with contextlib.suppress(OSError):  # killed for want of memory, say
                    socket.send_fds(worker.tasks, [b"\0"], [connection.fileno()])
                    self._supervise(worker, supervision)
                    break
            else:
                supervision.close()
        self._expected = kind
        return True

    def _prepare(self, kind: bytes) -> None:
        if kind in self._idle:
            return
        self._handlers[kind].prepare()
        _share()
        for worker in self._workers:
            worker.lacks_something = True
        for idle in self._idle.values():
            while idle:
                idle.pop().tasks.shutdown(socket.SHUT_WR)

    def _supervise(self, worker: _ForkedWorker, supervision: socket.socket) -> None:
        worker.supervision = supervision
        self._selector.register(supervision, selectors.EVENT_READ, lambda: self._hear_client(worker))
        with contextlib.suppress(OSError):  # the client has left
            supervision.send(b"\0")

    def _hear_client(self, worker: _ForkedWorker) -> None:
        """Handle a client's message: kill the worker, or stop supervising it."""
        assert worker.supervision
        with contextlib.suppress(OSError):
            if worker.supervision.recv(1) == KILL:
                os.kill(worker.pid, signal.SIGKILL)
                return
        self._stop_supervising(worker)

    def _hear_worker(self, worker: _ForkedWorker) -> None:
        """Handle a worker's message: it is free again, or has ended."""
        with contextlib.suppress(OSError):
            if worker.tasks.recv(1):
                self._stop_supervising(worker)
                if len(self._idle[worker.kind]) < _N_IDLE and not worker.lacks_something:
                    self._idle[worker.kind].append(worker)
                else:
                    worker.tasks.shutdown(socket.SHUT_WR)
                return
        if worker in self._idle[worker.kind]:  # it died without any work: no other one before it is needed
            self._idle[worker.kind].remove(worker)
            self._expected = None
        self._close(worker.tasks)
        self._workers.remove(worker)
        self._stop_supervising(worker, reap(worker.pid))

    def _stop_supervising(self, worker: _ForkedWorker, status: int | None = None) -> None:
        if worker.supervision:
            if status is not None:
                with contextlib.suppress(OSError):  # the client has left
                    worker.supervision.send(STATUS.pack(status))
            self._close(worker.supervision)
            worker.supervision = None

    def _close(self, end: socket.socket) -> None:
        self._selector.unregister(end)
        end.close()

    def _fork(self, kind: bytes, unwanted: Iterable[int] = ()) -> None:
        """Start an idle worker, which closes the descriptors `unwanted`."""
        ours, theirs = socket.socketpair()
        with theirs:
            others = [key.fd for key in self._selector.get_map().values()]
            work = functools.partial(self._start_work, theirs, self._handlers[kind])
            worker = _ForkedWorker(fork(work, [ours.fileno(), *others, *unwanted]), kind, ours)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._hear_worker(worker))
        self._workers.add(worker)
        self._idle[kind].append(worker)

    def _start_work(self, tasks: socket.socket, handler: TaskHandler) -> None:
        gc.enable()
        self._selector.close()
        threading.stack_size(_STACK_BYTES)
        thread = threading.Thread(target=_do_tasks, args=(tasks, handler))
        with contextlib.suppress(RuntimeError):  # none can be started: no task is to blame for that
            thread.start()
            thread.join()


def _do_tasks(tasks: socket.socket, handler: TaskHandler) -> None:
    """Do one task after the other until `tasks` is closed, or the fork server was killed."""
    with contextlib.suppress(ConnectionError):
        handler.warm_up()
        limits = WorkerLimits()
        while not limits.has_grown:
            message, descriptors, _, _ = socket.recv_fds(tasks, 1, 1)
            if not message:
                return
            with (
                Connection(descriptors[0]) as connection,
                contextlib.suppress(EOFError, OSError),
                limits.memory(_TASK_MEMORY),
            ):
                handler.do(connection, limits)
            if not limits.has_grown:
                tasks.send(b"\0")


def fork(work: Callable[[], None], unwanted: Iterable[int] = ()) -> int:
    """Run `work` in a new process without the descriptors `unwanted`; return its process id.

    The process ends with status 0 after the work, or with 1 if it raises.
    """
    if pid := os.fork():
        return pid
    status = 1
    try:
        for descriptor in unwanted:
            os.close(descriptor)
        inherit_lifeline()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would have clients' texts in it
        work()
        status = 0
    finally:
        os._exit(status)


def reap(pid: int) -> int:
    """Wait for the end of a forked process; return its status, as in `Popen.returncode`."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
