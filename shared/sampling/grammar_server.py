"""The process that follows grammars for an engine or a drafter, so that none of them can hold it up.

    python -m shared.sampling.grammar_server DESCRIPTOR MODEL

It reads the vocabulary once, then hands each grammar that arrives over the inherited socket to a process
that it has forked. What a client's grammar costs is that process's alone: one that takes too much time or
memory, or crashes, ends without touching another. `shared.sampling.remote_grammar` is the other end.
"""

import contextlib
import functools
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from shared.llama.vocabulary import Vocabulary
from shared.sampling.grammar import prepare
from shared.sampling.grammar_follower import follow, warm_up
from shared.sandbox import Limits, fork, share_memory

_NICENESS = 10
"""Behind the threads that decode: their tokens do not wait for this."""
_N_IDLE = 2
"""Processes kept for the next grammars: a new one needs ten times as long as a usual grammar."""
_REST_SECONDS = 0.05
"""Before a process is forked in advance: the latest grammar is compiled first."""


def main() -> None:
    """Serve until the other end of the socket is closed."""
    # A terminal and systemd send these to all processes; this one ends with the one that it serves.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    vocabulary = Vocabulary.load(Path(sys.argv[2]))
    prepare(vocabulary)
    warm_up(vocabulary)
    share_memory()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _Processes(vocabulary, requests).run()


class _Processes:
    """The forked processes: each follows one grammar at a time, then waits for the next one.

    A socket leads to each. A process sends a byte when it is free again, and ends when the socket is closed.
    """

    def __init__(self, vocabulary: Vocabulary, requests: socket.socket) -> None:
        """A message of `requests` is a byte with two descriptors: a connection, and a file with a grammar."""
        self._vocabulary = vocabulary
        self._requests = requests
        self._idle: list[socket.socket] = []
        self._may_fork_in_advance = True
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ)

    def run(self) -> None:
        """Hand over grammars until the other end of the socket is closed."""
        is_open = True
        while is_open:
            wants_one = self._may_fork_in_advance and not self._idle
            events = self._selector.select(_REST_SECONDS if wants_one else None)
            if wants_one and not events:
                self._fork()
            for key, _ in events:
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._requests:
                    is_open = self._hand_over()
                else:
                    self._hear(key.fileobj)

    def _hand_over(self) -> bool:
        """Give the next grammar to a process. Returns False if there will be none."""
        flags, descriptors, _, _ = socket.recv_fds(self._requests, 1, 2)
        for _ in range(_N_IDLE + 1 if flags else 0):
            if not self._idle:
                self._fork(descriptors)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # killed for want of memory, say
                socket.send_fds(self._idle.pop(), [flags], descriptors)
                break
        for descriptor in descriptors:
            os.close(descriptor)
        self._may_fork_in_advance = True
        return bool(flags)

    def _hear(self, process: socket.socket) -> None:
        """`process` is free again, or has ended."""
        with contextlib.suppress(ConnectionResetError):
            if process.recv(1) and len(self._idle) < _N_IDLE:
                self._idle.append(process)
                return
        if process in self._idle:  # it died without any work: no other one before it is needed
            self._idle.remove(process)
            self._may_fork_in_advance = False
        self._selector.unregister(process)
        process.close()

    def _fork(self, unwanted: Sequence[int] = ()) -> None:
        """Start an idle process, which closes the descriptors `unwanted`."""
        ours, theirs = socket.socketpair()
        with theirs:
            others = [key.fd for key in self._selector.get_map().values()]
            fork(functools.partial(self._work, theirs), [ours.fileno(), *others, *unwanted])
        self._selector.register(ours, selectors.EVENT_READ)
        self._idle.append(ours)

    def _work(self, grammars: socket.socket) -> None:
        self._selector.close()
        _follow_all(grammars, self._vocabulary)


def _follow_all(grammars: socket.socket, vocabulary: Vocabulary) -> None:
    """Follow one grammar after the other until `grammars` is closed."""
    os.nice(_NICENESS)
    warm_up(vocabulary)
    limits = Limits()
    while True:
        flags, descriptors, _, _ = socket.recv_fds(grammars, 1, 2)
        if not flags:
            return
        connection, text = descriptors
        follow(vocabulary, Connection(connection), text, limits, is_optional=flags == b"\x01")
        if limits.has_grown:
            return
        grammars.send(b"\0")


if __name__ == "__main__":
    main()
