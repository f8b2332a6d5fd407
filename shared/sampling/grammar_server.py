"""The process that follows grammars for an engine or a drafter, so that none of them can hold it up.

    python -m shared.sampling.grammar_server DESCRIPTOR MODEL

It reads the vocabulary once, then forks a process for each connection that arrives over the inherited
socket, always one in advance. What a client's grammar costs is that process's alone: one that takes too much
time or memory, or crashes, ends without touching another. `shared.sampling.remote_grammar` is the other end.
"""

import array
import contextlib
import enum
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import numpy as np

from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary
from shared.sampling.constrained import Constraint
from shared.sampling.grammar import FollowedGrammar, GrammarMatcher, Unconstrained, prepare
from shared.sampling.grammar_messages import AnswerKind, Operation

_COMPILE_SECONDS = 2.0
"""CPU time. A grammar was admitted because it took no longer than a quarter of this."""
_CALL_SECONDS = 1.0
"""CPU time between a question and its answer; the usual ones take up to 10 ms."""
_MEMORY = 1 << 30
"""Bytes that one grammar may take."""
_NICENESS = 10
"""Behind the threads that decode: their tokens do not wait for this."""
_REST_SECONDS = 0.05
"""Before the next process is forked, unless it is needed: the latest grammar is compiled first."""
_PAUSE_SECONDS = 0.1
"""Before a spare process that has died is followed by another one."""


def main() -> None:
    """Serve each connection until the other end is closed."""
    # A terminal and systemd send these to all processes; this one ends with the one that it serves.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    vocabulary = Vocabulary.load(Path(sys.argv[2]))
    prepare(vocabulary)
    gc.freeze()  # children share these pages as long as nobody writes to them
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while (outcome := _fork_spare(requests, vocabulary)) is not _SpareOutcome.CLOSED:
            if outcome is _SpareOutcome.SERVES:
                select.select([requests], [], [], _REST_SECONDS)
            else:  # killed for want of memory, say: no other one before it is needed
                time.sleep(_PAUSE_SECONDS)
                select.select([requests], [], [])


class _SpareOutcome(enum.Enum):
    """What became of a forked process: it serves a connection, the other end was closed, or it has died."""

    SERVES = b"S"
    CLOSED = b"C"
    DIED = b""


def _fork_spare(requests: socket.socket, vocabulary: Vocabulary) -> _SpareOutcome:
    """Fork the process for the next connection in advance, and wait until it is no longer a spare one.

    Forking and the first use of what was forked take ten times as long as compiling a usual grammar.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _wait_for_connection(requests, writer, vocabulary)
    os.close(writer)
    try:
        return _SpareOutcome(os.read(reader, 1))
    finally:
        os.close(reader)


def _wait_for_connection(requests: socket.socket, writer: int, vocabulary: Vocabulary) -> NoReturn:
    try:
        os.nice(_NICENESS)
        _warm_up(vocabulary)
        flags, descriptors, _, _ = socket.recv_fds(requests, 1, 2)
        requests.close()
        with contextlib.suppress(BrokenPipeError):  # the parent has died: this one serves all the same
            os.write(writer, (_SpareOutcome.SERVES if flags else _SpareOutcome.CLOSED).value)
        os.close(writer)
        if flags:
            _serve(vocabulary, descriptors, is_optional=flags == b"\x01")
    finally:
        os._exit(0)


def _warm_up(vocabulary: Vocabulary) -> None:
    """Touch the memory that a grammar needs."""
    with contextlib.suppress(ValueError, RequestError):
        GrammarMatcher('start: "a"\n', vocabulary).allowed()


def _serve(vocabulary: Vocabulary, descriptors: Sequence[int], *, is_optional: bool) -> None:
    connection, text = descriptors
    _limit_memory()
    with os.fdopen(text, encoding="utf-8") as file:
        grammar = file.read()
    with Connection(connection) as answers, contextlib.suppress(EOFError, OSError):
        _Follower(_compile(grammar, vocabulary, is_optional=is_optional)).serve(answers)


def _compile(text: str, vocabulary: Vocabulary, *, is_optional: bool) -> Constraint | RequestError:
    try:
        with _time_limit(_COMPILE_SECONDS):
            return FollowedGrammar(GrammarMatcher(text, vocabulary))
    except ValueError as error:
        return Unconstrained() if is_optional else RequestError(f"grammar: {error}", "grammar")


class _Follower:
    """The places in texts of one grammar, by number; 0 is the first one."""

    def __init__(self, first: Constraint | RequestError) -> None:
        self._places: dict[int, Constraint | RequestError] = {0: first}

    def serve(self, connection: Connection) -> None:
        """Answer until the other end is closed."""
        while True:
            numbers = array.array("i", connection.recv_bytes())
            with _time_limit(_CALL_SECONDS):
                answer = self._apply_all(numbers)
            connection.send_bytes(answer)

    def _apply_all(self, numbers: "array.array[int]") -> bytes:
        """Messages are operations of the form (operation, place, n, n arguments); the last one asks."""
        answer, at = b"", 0
        while at < len(numbers):
            operation, place, n = numbers[at : at + 3]
            answer = self._apply(Operation(operation), place, numbers[at + 3 : at + 3 + n].tolist())
            at += 3 + n
        return answer

    def _apply(self, operation: Operation, place: int, arguments: list[int]) -> bytes:
        if operation is Operation.DROP:
            self._places.pop(place, None)
            return b""
        constraint = self._places[place]
        if isinstance(constraint, RequestError):  # one that failed fails for good, and so does its copy
            if operation is Operation.COPY:
                self._places[arguments[0]] = constraint
            return AnswerKind.ERROR + str(constraint).encode()
        try:
            return AnswerKind.ANSWER + self._act(constraint, operation, arguments)
        except RequestError as error:
            self._places[place] = error
            return AnswerKind.ERROR + str(error).encode()

    def _act(self, constraint: Constraint, operation: Operation, arguments: list[int]) -> bytes:
        match operation:
            case Operation.ALLOWS:
                return bytes(constraint.allows(arguments))
            case Operation.ALLOWED:
                return constraint.allowed().astype(np.int32).tobytes()
            case Operation.ACCEPT:
                for token in arguments:
                    constraint.accept(token)
            case Operation.ROLLBACK:
                constraint.rollback(arguments[0])
            case Operation.COPY:
                self._places[arguments[0]] = constraint.copy()
        return b""


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """The kernel ends this process when it has used so much CPU time: native code notices no exception."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_memory(page: Callable[[], int] = resource.getpagesize) -> None:
    with contextlib.suppress(OSError, ValueError):  # no /proc, or no such limit on this system
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * page() + _MEMORY,) * 2)


if __name__ == "__main__":
    main()
