"""Following one grammar: the work of a process that `grammar_server` has forked."""

import array
import contextlib
import os
from multiprocessing.connection import Connection

import numpy as np

from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary
from shared.sampling.constrained import Constraint
from shared.sampling.grammar import FollowedGrammar, GrammarMatcher, Unconstrained
from shared.sampling.grammar_messages import AnswerKind, Operation
from shared.sandbox import Limits

_COMPILE_SECONDS = 2.0
"""CPU time. A grammar was admitted because it took no longer than a quarter of this."""
_CALL_SECONDS = 1.0
"""CPU time between a question and its answer; the usual ones take up to 10 ms."""
_MEMORY = 1 << 30
"""Bytes that one grammar may take."""
_USUAL = 'start: %json {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}\n'


def warm_up(vocabulary: Vocabulary) -> None:
    """Touch the memory that a usual grammar needs."""
    with contextlib.suppress(ValueError, RequestError):
        GrammarMatcher(_USUAL, vocabulary).allowed()


def follow(
    vocabulary: Vocabulary, connection: Connection, text: int, limits: Limits, *, is_optional: bool
) -> None:
    """Answer questions about the grammar in the file `text` until the other end of `connection` is closed.

    The kernel ends this process if the grammar takes more time than it may.
    """
    limits.set_memory(_MEMORY)
    with os.fdopen(text, encoding="utf-8") as file:
        grammar = file.read()
    with connection, contextlib.suppress(EOFError, OSError):
        with limits.time(_COMPILE_SECONDS):
            compiled = _compile(grammar, vocabulary, is_optional=is_optional)
        _Follower(compiled, limits).serve(connection)


def _compile(text: str, vocabulary: Vocabulary, *, is_optional: bool) -> Constraint | RequestError:
    try:
        return FollowedGrammar(GrammarMatcher(text, vocabulary))
    except ValueError as error:
        return Unconstrained() if is_optional else RequestError(f"grammar: {error}", "grammar")


class _Follower:
    """The places in texts of one grammar, by number; 0 is the first one."""

    def __init__(self, first: Constraint | RequestError, limits: Limits) -> None:
        self._places: dict[int, Constraint | RequestError] = {0: first}
        self._limits = limits

    def serve(self, connection: Connection) -> None:
        """Answer until the other end is closed."""
        while True:
            numbers = array.array("i", connection.recv_bytes())
            with self._limits.time(_CALL_SECONDS):
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
