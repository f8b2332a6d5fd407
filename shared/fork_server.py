"""The fork server of a `shared.sandbox.Sandbox`: `python -m shared.fork_server NAME DESCRIPTOR`.

It loads the program that is pickled on its standard input, then forks workers and hands them the tasks that
arrive over the inherited socket. A task is two descriptors (`shared.sandbox.Task`), a worker gets the first.
NAME is for whoever lists the processes. With the argument `IN_IDLE_TIME` it loads while cores are idle. It
sends `LOADED` when it has.
"""

import contextlib
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
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection

from shared.errors import ModelLoadError
from shared.sandbox import IN_IDLE_TIME, KILL, LOADED, MEGABYTE, STATUS, Program, TaskHandler, WorkerLimits

_STACK_BYTES = 128 * MEGABYTE
"""For the thread that works. std::regex, with which llama.cpp splits text for some models, takes up to 400
bytes for each character of a run: this is enough for 300,000. Only what is needed uses memory."""
_TASK_MEMORY = 1024 * MEGABYTE
"""Bytes that a task may take if its handler sets no other limit."""
_N_IDLE = 2
"""Workers kept for the next tasks: forking takes ten times as long as a usual task."""
_REST_SECONDS = 0.05
"""Before a worker is forked in advance: the latest task comes first."""


def main() -> None:
    """Serve until the other end of the socket is closed."""
    # A terminal and systemd send these to all processes; this one ends with the one that it serves.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # as in `shared.imports.import_program`
    program: Program = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent, a program with the same rights
    try:
        handler = _load_in_idle_time(program) if sys.argv[3:] == [IN_IDLE_TIME] else program.load()
    except ModelLoadError:
        return  # the parent, which loads the same file, says why
    gc.collect()
    gc.freeze()  # what the garbage collector leaves alone stays shared with all workers
    gc.enable()
    with socket.socket(fileno=int(sys.argv[2])) as control:
        with contextlib.suppress(OSError):  # the other end may be gone
            control.send(LOADED)
        ForkServer(control, handler).run()


def _load_in_idle_time(program: Program) -> TaskHandler:
    """In a thread: what has given up its priority may not take it back, and workers are forked from here."""
    with ThreadPoolExecutor(1, initializer=_wait_for_idle_cores) as executor:
        return executor.submit(program.load).result()


def _wait_for_idle_cores() -> None:
    """Let this thread run only where nothing else wants to, if the system knows such a thing."""
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@dataclass(eq=False, slots=True)
class _Child:
    """supervision: the fork server's end of the task's, while the worker does one and the client wants it."""

    pid: int
    tasks: socket.socket
    supervision: socket.socket | None = None


class ForkServer:
    """Forks workers; each does one task at a time, then waits for the next one.

    A socket leads to each worker. The worker sends a byte when it is free again, and ends when the socket is
    closed.
    """

    def __init__(self, control: socket.socket, handler: TaskHandler) -> None:
        self._control = control
        self._handler = handler
        self._workers: set[_Child] = set()
        self._idle: list[_Child] = []
        self._may_fork_in_advance = True
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def run(self) -> None:
        """Hand over tasks until the other end of `control` is closed, then end all workers."""
        is_open = True
        while is_open:
            forks = self._may_fork_in_advance and not self._idle
            events = self._selector.select(_REST_SECONDS if forks else None)
            if forks and not events:
                self._fork()
            for key, _ in events:
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._control:
                    is_open = self._hand_over()
                elif key.fileobj.fileno() >= 0:  # not closed by an event before
                    key.data()
        for worker in self._workers:
            os.kill(worker.pid, signal.SIGKILL)  # not reaped yet, so no other process has its id
            os.waitpid(worker.pid, 0)

    def _hand_over(self) -> bool:
        """Give the next task to a worker. Returns False if there will be none."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, 1, 2)
        except ConnectionResetError:  # nobody has read `LOADED`
            return False
        if not message:
            return False
        connection, supervision = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        with connection:
            for _ in range(_N_IDLE + 1):
                if not self._idle:
                    self._fork([connection.fileno(), supervision.fileno()])
                worker = self._idle.pop()
                with contextlib.suppress(OSError):  # killed for want of memory, say
                    socket.send_fds(worker.tasks, [b"\0"], [connection.fileno()])
                    self._supervise(worker, supervision)
                    break
            else:
                supervision.close()
        self._may_fork_in_advance = True
        return True

    def _supervise(self, worker: _Child, supervision: socket.socket) -> None:
        worker.supervision = supervision
        self._selector.register(supervision, selectors.EVENT_READ, lambda: self._hear_client(worker))
        with contextlib.suppress(OSError):  # the client has left
            supervision.send(b"\0")

    def _hear_client(self, worker: _Child) -> None:
        """The client of a task wants the worker killed, or needs to know no more of it."""
        assert worker.supervision
        with contextlib.suppress(OSError):
            if worker.supervision.recv(1) == KILL:
                os.kill(worker.pid, signal.SIGKILL)
                return
        self._stop_supervising(worker)

    def _hear_worker(self, worker: _Child) -> None:
        """`worker` is free again, or has ended."""
        with contextlib.suppress(OSError):
            if worker.tasks.recv(1):
                self._stop_supervising(worker)
                if len(self._idle) < _N_IDLE:
                    self._idle.append(worker)
                else:
                    worker.tasks.shutdown(socket.SHUT_WR)
                return
        if worker in self._idle:  # it died without any work: no other one before it is needed
            self._idle.remove(worker)
            self._may_fork_in_advance = False
        self._close(worker.tasks)
        self._workers.remove(worker)
        _, status = os.waitpid(worker.pid, 0)
        self._stop_supervising(worker, os.waitstatus_to_exitcode(status))

    def _stop_supervising(self, worker: _Child, status: int | None = None) -> None:
        if worker.supervision:
            if status is not None:
                with contextlib.suppress(OSError):  # the client has left
                    worker.supervision.send(STATUS.pack(status))
            self._close(worker.supervision)
            worker.supervision = None

    def _close(self, end: socket.socket) -> None:
        self._selector.unregister(end)
        end.close()

    def _fork(self, unwanted: Iterable[int] = ()) -> None:
        """Start an idle worker, which closes the descriptors `unwanted`."""
        ours, theirs = socket.socketpair()
        with theirs:
            others = [key.fd for key in self._selector.get_map().values()]
            worker = _Child(
                fork(functools.partial(self._start_work, theirs), [ours.fileno(), *others, *unwanted]), ours
            )
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._hear_worker(worker))
        self._workers.add(worker)
        self._idle.append(worker)

    def _start_work(self, tasks: socket.socket) -> None:
        self._selector.close()
        threading.stack_size(_STACK_BYTES)
        thread = threading.Thread(target=_do_tasks, args=(tasks, self._handler))
        thread.start()
        thread.join()


def _do_tasks(tasks: socket.socket, handler: TaskHandler) -> None:
    """Do one task after the other until `tasks` is closed, or the fork server was killed."""
    with contextlib.suppress(ConnectionError):
        _do_all(tasks, handler)


def _do_all(tasks: socket.socket, handler: TaskHandler) -> None:
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


if __name__ == "__main__":
    main()
