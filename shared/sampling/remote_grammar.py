"""Grammars followed by other processes (`grammar_worker`), with a limit on the time to wait for answers."""

import array
import contextlib
import math
import os
import pickle
import signal
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

from shared.errors import PendingAnswerError, RequestError, UnavailableError
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.grammar_handler import GrammarProgram
from shared.sampling.grammar_worker import AnswerKind, Operation
from shared.sandbox import FOLLOW, STATUS, Sandbox

_AT_ONCE_BYTES = 1 << 16
"""The kernel buffers unread messages up to this size. Longer messages may wait for a compilation."""
_MAX_OPENED = 3
_NEWS_SECONDS = 1.0
"""How long to wait for the fork server's report on a closed connection. It usually takes microseconds."""
_RETRY_SECONDS = 0.25
_PATIENCE_SECONDS = 15.0
"""The time for which a descriptor, memory or a process for following a grammar may be lacking: less than
`lead.engine.loop.STALL_SECONDS`, after which the engine would end.
"""
_NO_START = "the grammar process does not start: try again in a moment"
_TOO_COSTLY = "the grammar takes too much time or memory: simplify it"


class TimeBudget(GrammarBudget):
    """The time to wait for all answers from now on; `left` is in seconds."""

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.perf_counter) -> None:
        self.left = seconds
        self._clock = clock

    def set(self, seconds: float) -> None:
        """Allow at most `seconds` from now on, until the next call."""
        self.left = seconds

    def poll(self, connection: Connection) -> bool:
        """Return whether there is something to read, now or before the time is up."""
        begun = self._clock()
        ready = connection.poll(None if math.isinf(self.left) else max(0.0, self.left))
        self.left -= self._clock() - begun
        return ready

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`, or until the time is up."""
        slept = max(0.0, min(seconds, self.left))
        time.sleep(slept)
        self.left -= slept


class GrammarServer(Sandbox):
    """Lets workers in other processes follow grammars."""

    def __init__(self, model: Path, budget: TimeBudget, control: socket.socket | None = None) -> None:
        """model: a GGUF with the vocabulary. budget: the time to wait for answers to all grammars. control:
        the socket of a fork server that has read the same vocabulary.
        """
        super().__init__(GrammarProgram(model), control)
        self._budget = budget

    def follow(self, grammar: str | CallGrammars, *, is_optional: bool = False) -> "RemoteGrammar":
        """Return the state at the beginning of a text under `grammar`, without waiting until the grammar is
        compiled.

        is_optional: a grammar that this vocabulary cannot express allows everything. The grammars of calls
        are optional.
        """
        return RemoteGrammar(_Channel(self, pickle.dumps((grammar, is_optional)), self._budget))


@dataclass(slots=True, eq=False)
class _Question:
    operation: tuple[int, ...]
    answer: bytes | None = None


class _Channel:
    """The connection to one grammar's process, which several points of texts share."""

    def __init__(self, sandbox: Sandbox, grammar: bytes, budget: TimeBudget) -> None:
        """grammar: the first message to each process."""
        self.n_places = 1
        self.unsent = array.array("i")
        """Operations to send with the next question."""
        self._sandbox = sandbox
        self._budget = budget
        self._unanswered: deque[_Question] = deque()
        self._sent = [grammar]
        """All messages; if the process is killed, the next process gets them again."""
        self._n_answered = 0
        self._n_known = 0
        """How many of the process's next answers are already known from an earlier process."""
        self._n_opened = 0
        """The number of processes started since the last new answer."""
        self._connection: Connection | None = None
        self._sending: threading.Thread | None = None
        self._lacks_since: float | None = None
        """The time since which a descriptor, memory or a process is lacking; None: nothing is lacking."""
        self._open()

    def _open(self) -> None:
        """Connect to a new process that follows the grammar, if that is possible now."""
        self._connection, self._tried_at = None, time.monotonic()
        try:
            task = self._sandbox.open(FOLLOW)
        except OSError:
            self._lacks_since = self._lacks_since or self._tried_at
            return
        self._n_opened, self._lacks_since = self._n_opened + 1, None
        self._connection, self._supervision = (Connection(each.detach()) for each in task)
        self._sending, self._n_known = None, self._n_answered
        self._send(*self._sent)

    def tell(self, operation: Operation, place: int, arguments: Sequence[int]) -> None:
        self.unsent.extend((operation, place, len(arguments), *arguments))

    def ask(self, operation: Operation, place: int, arguments: Sequence[int]) -> _Question:
        self.tell(operation, place, arguments)
        question = _Question((operation, *arguments))
        self._unanswered.append(question)
        message, self.unsent = self.unsent.tobytes(), array.array("i")
        self._sent.append(message)
        self._send(message)
        return question

    def _send(self, *messages: bytes) -> None:
        """Send messages; a thread sends messages that must wait until they are read."""
        connection, earlier = self._connection, self._sending
        if connection is None:
            return  # `_open` sends all
        is_short = len(messages) == 1 and len(messages[0]) <= _AT_ONCE_BYTES
        if is_short and (earlier is None or not earlier.is_alive()):
            _send_after(None, connection, messages)
        else:  # a long grammar, a long text that is resumed, or all that was sent before
            self._sending = threading.Thread(
                target=_send_after, args=(earlier, connection, messages), daemon=True
            )
            self._sending.start()

    def wait_for(self, question: _Question) -> bytes:
        """Return the answer.

        Raises PendingAnswerError if it does not come in time, and the errors of `RemoteGrammar`.
        """
        while question.answer is None:
            if self._connection is None:
                self._retry()
                continue
            if not self._budget.poll(self._connection):
                raise PendingAnswerError("a grammar is being followed")
            try:
                answer = self._connection.recv_bytes()
            except (EOFError, OSError) as error:
                if not self._is_lost():
                    raise RequestError(_TOO_COSTLY, "grammar") from error
                if self._n_opened == _MAX_OPENED:
                    raise UnavailableError(_NO_START) from error
                self._open()
            else:
                self._take(answer)
        return question.answer

    def _take(self, answer: bytes) -> None:
        self._supervision.close()
        if self._n_known:
            self._n_known -= 1
            return
        self._unanswered.popleft().answer = answer
        self._n_answered, self._n_opened = self._n_answered + 1, 0

    def _retry(self) -> None:
        """Try to connect again, when a try is due; raises the errors of `wait_for`."""
        assert self._lacks_since is not None
        due = self._tried_at + _RETRY_SECONDS
        self._budget.sleep(due - time.monotonic())
        if time.monotonic() < due:
            raise PendingAnswerError("there is no process for a grammar yet")
        if self._tried_at - self._lacks_since > _PATIENCE_SECONDS:
            raise UnavailableError(_NO_START)
        self._open()

    def _is_lost(self) -> bool:
        """Return whether the grammar can be followed again, because the grammar did not cause the end of its
        process.

        That is so if the process was killed from outside, or if the fork server ended before a worker began.
        After the first answer, the cause of an end is unknown. Then a few processes are tried: if the
        question is at fault, all of them end at it.
        """
        if self._n_answered:
            return self._n_opened < _MAX_OPENED
        news = b""
        while len(news) <= STATUS.size and self._supervision.poll(_NEWS_SECONDS):
            if not (part := os.read(self._supervision.fileno(), 1 + STATUS.size - len(news))):
                return not news
            news += part
        return len(news) > STATUS.size and STATUS.unpack(news[1:])[0] == -signal.SIGKILL


def _send_after(earlier: threading.Thread | None, connection: Connection, messages: Sequence[bytes]) -> None:
    if earlier:
        earlier.join()
    with contextlib.suppress(OSError):  # `wait_for` notices a closed connection
        for message in messages:
            connection.send_bytes(message)


@dataclass(slots=True)
class RemoteGrammar:
    """The state of a grammar at some point of a text: a `shared.sampling.constrained.Constraint`.

    A question raises PendingAnswerError if there is no answer in time; ask it again later. It raises
    RequestError if the grammar is at fault, and UnavailableError if this machine cannot follow grammars for
    now.
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
        except (RequestError, UnavailableError):  # the next question raises it
            return True
        return True

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        """Return, for each of `tokens`, whether it may come next; an end token only where the text
        may end.
        """
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
        self._question = None  # the answer to an earlier question is no longer needed
        self._channel.tell(operation, self._place, (argument,))

    def _ask(self, operation: Operation, arguments: Sequence[int]) -> bytes:
        if self._question is None or self._question.operation != (operation, *arguments):
            self._question = self._channel.ask(operation, self._place, arguments)
        answer = self._channel.wait_for(self._question)
        if answer.startswith(AnswerKind.ERROR):
            raise RequestError(answer[1:].decode(), "grammar")
        return answer[1:]
