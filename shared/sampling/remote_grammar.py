"""Grammars followed by another process (`grammar_server`): who asks waits no longer than it wants to."""

import array
import contextlib
import math
import os
import socket
import subprocess
import sys
import tempfile
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
from shared.sampling.grammar_messages import AnswerKind, Operation
from shared.sandbox import sandbox_environment

_AT_ONCE_BYTES = 1 << 16
"""The kernel takes so much from a message before anybody has read of it; more may wait for a compilation."""
_TOO_COSTLY = "the grammar takes too much time or memory"


class Patience:
    """How long to wait for answers from now on, all together; `left` is in seconds."""

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.perf_counter) -> None:
        self.left = seconds
        self._clock = clock

    def grant(self, seconds: float) -> None:
        """Wait at most so long until this is called again."""
        self.left = seconds

    def poll(self, connection: Connection) -> bool:
        """Whether there is something to read, now or before patience runs out."""
        begun = self._clock()
        ready = connection.poll(None if math.isinf(self.left) else max(0.0, self.left))
        self.left -= self._clock() - begun
        return ready


class GrammarServer:
    """The process that forks the ones that follow grammars. It starts with the first one, or with `start`.

    `close` it, or be its parent's end.
    """

    def __init__(self, model: Path, patience: Patience) -> None:
        """`model` is a GGUF with the vocabulary; `patience` is that for all answers."""
        self._model = model
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start the process before the first grammar needs it, since it has the vocabulary to read."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            module = "shared.sampling.grammar_server"
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(self._model)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=sandbox_environment(os.environ),
            )

    def follow(self, text: str, *, is_optional: bool = False) -> "RemoteGrammar":
        """The beginning of a text under the grammar `text`; returns before that is compiled.

        is_optional: a grammar that this vocabulary cannot express allows everything.
        """
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as file:
            file.write(text.encode())
            file.seek(0)
            self._send(b"\x01" if is_optional else b"\x02", [theirs.fileno(), file.fileno()])
        return RemoteGrammar(_Channel(Connection(ours.detach()), self._patience))

    def close(self) -> None:
        """End the process; those that it has forked end with their connections."""
        if self._socket:
            self._socket.close()
        if self._process:
            self._process.wait()
        self._socket = self._process = None

    def _send(self, flags: bytes, descriptors: Sequence[int]) -> None:
        for _ in range(2):
            if self._socket is None:
                self.start()
            assert self._socket
            try:
                socket.send_fds(self._socket, [flags], descriptors)
            except (BrokenPipeError, ConnectionResetError):
                self.close()
            else:
                return
        raise RequestError("the process that follows grammars does not start", "grammar")


@dataclass(slots=True, eq=False)
class _Question:
    asked: tuple[int, ...]
    answer: bytes | None = None


class _Channel:
    """One grammar's process; several places in texts share it."""

    def __init__(self, connection: Connection, patience: Patience) -> None:
        self.n_places = 1
        self.unsaid = array.array("i")
        """Operations to send with the next question."""
        self._connection = connection
        self._patience = patience
        self._unanswered: deque[_Question] = deque()
        self._sending: threading.Thread | None = None

    def tell(self, operation: Operation, place: int, arguments: Sequence[int]) -> None:
        self.unsaid.extend((operation, place, len(arguments), *arguments))

    def ask(self, operation: Operation, place: int, arguments: Sequence[int]) -> _Question:
        self.tell(operation, place, arguments)
        question = _Question((operation, *arguments))
        self._unanswered.append(question)
        message, self.unsaid = self.unsaid.tobytes(), array.array("i")
        if self._sending:
            self._sending.join()
            self._sending = None
        if len(message) > _AT_ONCE_BYTES:  # a long text that is resumed
            self._sending = threading.Thread(target=self._send, args=[message], daemon=True)
            self._sending.start()
        else:
            self._send(message)
        return question

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # who reads the answer notices
            self._connection.send_bytes(message)

    def wait_for(self, question: _Question) -> bytes:
        """The answer; raises PendingAnswerError if it does not come in time."""
        while question.answer is None:
            if not self._patience.poll(self._connection):
                raise PendingAnswerError("a grammar is being followed")
            try:
                self._unanswered.popleft().answer = self._connection.recv_bytes()
            except (EOFError, OSError) as error:
                raise RequestError(_TOO_COSTLY, "grammar") from error
        return question.answer


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
        """Whether the last question can be asked again without a PendingAnswerError."""
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
        """The ids of all tokens that may come next, ascending."""
        return np.frombuffer(self._ask(Operation.ALLOWED, ()), np.int32)

    def accept(self, token: int) -> None:
        """Advance by `token`."""
        self._tell(Operation.ACCEPT, token)

    def rollback(self, n: int) -> None:
        """Remove the last `n` accepted tokens."""
        if n:
            self._tell(Operation.ROLLBACK, n)

    def copy(self) -> Self:
        """An independent copy, at the same place."""
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
        if self._question is None or self._question.asked != (operation, *arguments):
            self._question = self._channel.ask(operation, self._place, arguments)
        answer = self._channel.wait_for(self._question)
        if answer.startswith(AnswerKind.ERROR):
            raise RequestError(answer[1:].decode(), "grammar")
        return answer[1:]
