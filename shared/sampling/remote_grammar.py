"""Grammars followed by other processes (`grammar_worker`): who asks waits no longer than it wants to."""

import array
import contextlib
import math
import os
import pickle
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shared.errors import PendingAnswerError, RequestError
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.grammar_handler import GrammarProgram
from shared.sampling.grammar_worker import AnswerKind, Operation
from shared.sandbox import FOLLOW, Sandbox

_AT_ONCE_BYTES = 1 << 16
"""The kernel buffers this much of a message that nobody reads yet; more may wait for a compilation."""
_MAX_OPENED = 3
_NEWS_SECONDS = 1.0
"""The news of the fork server usually come within microseconds of the end of the connection."""
_NO_START = "the process that follows grammars does not start"
_TOO_COSTLY = "the grammar takes too much time or memory"


class TimeBudget(GrammarBudget):
    """How long to wait for answers from now on, all together; `left` is in seconds."""

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.perf_counter) -> None:
        self.left = seconds
        self._clock = clock

    def set(self, seconds: float) -> None:
        """Wait at most `seconds` from now on, until this is called again."""
        self.left = seconds

    def poll(self, connection: Connection) -> bool:
        """Whether there is something to read, now or before the time is up."""
        begun = self._clock()
        ready = connection.poll(None if math.isinf(self.left) else max(0.0, self.left))
        self.left -= self._clock() - begun
        return ready


class GrammarServer(Sandbox):
    """Has grammars followed by its workers."""

    def __init__(self, model: Path, budget: TimeBudget, control: socket.socket | None = None) -> None:
        """model: a GGUF with the vocabulary. budget: for the answers to all grammars.

        control: of a fork server that has read the same vocabulary.
        """
        super().__init__(GrammarProgram(model), control)
        self._budget = budget

    def follow(self, grammar: str | CallGrammars, *, is_optional: bool = False) -> "RemoteGrammar":
        """The beginning of a text under `grammar`; returns before that is compiled.

        is_optional: a grammar that this vocabulary cannot express allows everything. Those of calls are.
        """
        return RemoteGrammar(_Channel(self, pickle.dumps((grammar, is_optional)), self._budget))


@dataclass(slots=True, eq=False)
class _Question:
    operation: tuple[int, ...]
    answer: bytes | None = None


class _Channel:
    """One grammar's process; several places in texts share it."""

    def __init__(self, sandbox: Sandbox, grammar: bytes, budget: TimeBudget) -> None:
        """grammar: the first message; raises RequestError."""
        self.n_places = 1
        self.unsent = array.array("i")
        """Operations to send with the next question."""
        self._sandbox = sandbox
        self._budget = budget
        self._unanswered: deque[_Question] = deque()
        self._sent = [grammar]
        """All messages until the first answer: they may be lost with the fork server."""
        self._n_opened = 0
        self._open()

    def _open(self) -> None:
        if self._n_opened == _MAX_OPENED:
            raise RequestError(_NO_START, "grammar")
        try:
            task = self._sandbox.open(FOLLOW)
        except OSError as error:
            raise RequestError(_NO_START, "grammar") from error
        self._n_opened += 1
        self._connection, self._supervision = (Connection(each.detach()) for each in task)
        self._sending: threading.Thread | None = None
        for message in self._sent:
            self._send(message)

    def tell(self, operation: Operation, place: int, arguments: Sequence[int]) -> None:
        self.unsent.extend((operation, place, len(arguments), *arguments))

    def ask(self, operation: Operation, place: int, arguments: Sequence[int]) -> _Question:
        self.tell(operation, place, arguments)
        question = _Question((operation, *arguments))
        self._unanswered.append(question)
        message, self.unsent = self.unsent.tobytes(), array.array("i")
        if self._sent:
            self._sent.append(message)
        self._send(message)
        return question

    def _send(self, message: bytes) -> None:
        """Send a message, or have a thread send it that waits until somebody reads."""
        connection, earlier = self._connection, self._sending
        if len(message) <= _AT_ONCE_BYTES and (earlier is None or not earlier.is_alive()):
            _send_after(None, connection, message)
        else:  # a long grammar, or a long text that is resumed
            self._sending = threading.Thread(
                target=_send_after, args=(earlier, connection, message), daemon=True
            )
            self._sending.start()

    def wait_for(self, question: _Question) -> bytes:
        """The answer; raises PendingAnswerError if it does not come in time."""
        while question.answer is None:
            if not self._budget.poll(self._connection):
                raise PendingAnswerError("a grammar is being followed")
            try:
                answer = self._connection.recv_bytes()
            except (EOFError, OSError) as error:
                if not self._is_lost():
                    raise RequestError(_TOO_COSTLY, "grammar") from error
                self._open()
            else:
                self._unanswered.popleft().answer = answer
                self._sent.clear()
                self._supervision.close()
        return question.answer

    def _is_lost(self) -> bool:
        """Whether the fork server has ended before a worker began."""
        if not self._sent:
            return False
        return self._supervision.poll(_NEWS_SECONDS) and not os.read(self._supervision.fileno(), 1)


def _send_after(earlier: threading.Thread | None, connection: Connection, message: bytes) -> None:
    if earlier:
        earlier.join()
    with contextlib.suppress(OSError):  # who reads the answer notices
        connection.send_bytes(message)


@dataclass(slots=True)
class RemoteGrammar:
    """A place in a text under a grammar: a `shared.sampling.constrained.Constraint`.

    A question raises PendingAnswerError if there is no answer in time. Ask the same again later.
    """

    _channel: _Channel
    _place: int = 0
    _question: _Question | None = field(default=None, init=False)
    __weakref__: object = field(init=False, repr=False)

    @property
    def is_ready(self) -> bool:
        if self._question is None:
            return True
        try:
            self._channel.wait_for(self._question)
        except PendingAnswerError:
            return False
        except RequestError:  # for the one who asks again
            return True
        return True

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        """Which of `tokens` may come next; an end token only where the text may end."""
        return [bool(each) for each in self._ask(Operation.ALLOWS, tokens)]

    def allowed(self) -> NDArray[np.int32]:
        return np.frombuffer(self._ask(Operation.ALLOWED, ()), np.int32)

    def accept(self, token: int) -> None:
        self._tell(Operation.ACCEPT, token)

    def rollback(self, n: int) -> None:
        if n:
            self._tell(Operation.ROLLBACK, n)

    def copy(self) -> Self:
        channel, place = self._channel, self._channel.n_places
        channel.n_places += 1
        channel.tell(Operation.COPY, self._place, (place,))
        other = type(self)(channel, place)
        weakref.finalize(other, channel.tell, Operation.DROP, place, ())
        return other

    def _tell(self, operation: Operation, argument: int) -> None:
        self._question = None  # what was asked before is of no use any more
        self._channel.tell(operation, self._place, (argument,))

    def _ask(self, operation: Operation, arguments: Sequence[int]) -> bytes:
        if self._question is None or self._question.operation != (operation, *arguments):
            self._question = self._channel.ask(operation, self._place, arguments)
        answer = self._channel.wait_for(self._question)
        if answer.startswith(AnswerKind.ERROR):
            raise RequestError(answer[1:].decode(), "grammar")
        return answer[1:]
