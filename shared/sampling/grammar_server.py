"""The process that follows grammars for an engine or a drafter, so that none of them can hold it up.

    python -m shared.sampling.grammar_server DESCRIPTOR MODEL

It reads the vocabulary once, then forks a process for each connection that arrives over the inherited
socket. What a client's grammar costs is that process's alone: one that takes too much time or memory, or
crashes, ends without touching another. `shared.sampling.remote_grammar` is the other end.
"""

import array
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
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


def main() -> None:
    """Fork for each connection until the other end is closed."""
    # A terminal and systemd send these to all processes; this one ends with the one that it serves.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    vocabulary = Vocabulary.load(Path(sys.argv[2]))
    prepare(vocabulary)
    gc.freeze()  # children share these pages as long as nobody writes to them
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            flags, descriptors, _, _ = socket.recv_fds(requests, 1, 2)
            if not flags:
                return
            if os.fork() == 0:
                requests.close()
                _serve(vocabulary, descriptors, is_optional=flags == b"\x01")
            for descriptor in descriptors:
                os.close(descriptor)


def _serve(vocabulary: Vocabulary, descriptors: Sequence[int], *, is_optional: bool) -> NoReturn:
    connection, text = descriptors
    try:
        _limit_memory()
        os.nice(_NICENESS)
        with os.fdopen(text, encoding="utf-8") as file:
            grammar = file.read()
        with Connection(connection) as answers, contextlib.suppress(EOFError, OSError):
            _Follower(_compile(grammar, vocabulary, is_optional=is_optional)).serve(answers)
    finally:
        os._exit(0)


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
