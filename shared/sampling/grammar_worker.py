"""A worker that follows grammars, one at a time, for `shared.sampling.remote_grammar`.

A task is one grammar, or the grammars of an answer's calls. Its first message is pickled: the grammars, and
whether a grammar that cannot be compiled allows everything. Every later message is a list of operations,
as int32 numbers: (operation, place, n, n arguments). Its last operation is ALLOWS or ALLOWED. The worker
answers each message once: one byte of `AnswerKind`, then the result of that operation or the error's text.
"""

import array
import contextlib
import enum
import pickle
from multiprocessing.connection import Connection

import numpy as np

from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.constrained import Constraint
from shared.sampling.followed_calls import FollowedCalls
from shared.sampling.grammar import FollowedGrammar, GrammarMatcher
from shared.sandbox import WorkerLimits

_COMPILE_SECONDS = 4.0
"""The limit of CPU time to compile. A grammar was admitted because it took at most a quarter of this."""
_CALL_SECONDS = 1.0
"""The limit of CPU time between a question and its answer; usual answers take up to 10 ms."""
_USUAL = 'start: %json {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}\n'


class Operation(enum.IntEnum):
    """An operation on a place. A place is the state of the grammar at a point of a text; it has a number."""

    ALLOWS = 1  # tokens; answered with a byte for each: 1 if it may come next
    ALLOWED = 2  # answered with the int32 ids of all tokens that may come next
    ACCEPT = 3  # tokens that follow
    ROLLBACK = 4  # how many of them to take back
    COPY = 5  # the number of the new place
    DROP = 6  # the place is not needed any more


class AnswerKind:
    """The first byte of an answer."""

    ANSWER = b"\x00"
    ERROR = b"\x01"


def warm_up_grammars(vocabulary: Vocabulary) -> None:
    """Warm up: index the vocabulary, and touch the memory that a typical grammar needs."""
    with contextlib.suppress(ValueError, RequestError):
        GrammarMatcher(_USUAL, vocabulary).allowed()


def follow(connection: Connection, limits: WorkerLimits, vocabulary: Vocabulary) -> None:
    """Serve one grammar until the other end of `connection` is closed."""
    grammar, is_optional = pickle.loads(connection.recv_bytes())  # noqa: S301 - from the same program
    with limits.time(_COMPILE_SECONDS):
        compiled = _compile(grammar, vocabulary, is_optional=is_optional)
    _Follower(compiled, limits).serve(connection)


def _compile(
    grammar: str | CallGrammars, vocabulary: Vocabulary, *, is_optional: bool
) -> Constraint | RequestError:
    if isinstance(grammar, CallGrammars):
        return FollowedCalls(grammar, vocabulary)
    try:
        return FollowedGrammar(GrammarMatcher(grammar, vocabulary))
    except ValueError as error:
        return FollowedGrammar(None) if is_optional else RequestError(f"grammar: {error}", "grammar")


class _Follower:
    """The places of one grammar, by number; place 0 is the beginning of a text."""

    def __init__(self, first: Constraint | RequestError, limits: WorkerLimits) -> None:
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
        """Apply the operations of a message; return the answer to the last one."""
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
        if isinstance(constraint, RequestError):  # a failed grammar fails for good, and so does its copy
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
