"""The process that loads the vocabulary once and forks workers; it never sees a client's text.

Commands come from the front over a stream socket: FORK, with the socket for the new worker, and END with the
process id of a worker to be killed, if it still runs, and reaped. Each is answered: with the process id, or
with the status in which the process ended, as `Popen.returncode` has it.
"""

import contextlib
import functools
import logging
import os
import signal
import socket
import struct

from lead.chat.template import model_template
from lead.tokenizer.jobs import HEADER, Setup, decode
from lead.tokenizer.preparation import Preparation
from lead.tokenizer.worker_loop import run_worker
from shared.errors import ModelLoadError
from shared.llama.vocabulary import Vocabulary
from shared.logs import configure_logging
from shared.sampling.grammar import prepare
from shared.sandbox import fork, share_memory

log = logging.getLogger("tokenizer")

COMMAND = struct.Struct("!ci")
REPLY = struct.Struct("!i")
READY = REPLY.pack(0)
FORK = b"F"
END = b"E"


def serve_forks(control: socket.socket) -> None:
    """Load what the first message names, then obey until the front closes the socket."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the front ends whenever it wants to
        _, n = HEADER.unpack(_read(control, HEADER.size))
        setup: Setup = decode(_read(control, n))
        configure_logging(setup.log_level, as_json=setup.log_json)
        try:
            preparation = _load(setup)
        except ModelLoadError:
            return  # the front, which loads the same file, says why
        share_memory()
        control.sendall(READY)
        _obey(control, preparation, setup.limits.prepare_seconds)


def _obey(control: socket.socket, preparation: Preparation, base_seconds: float) -> None:
    children: set[int] = set()
    try:
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, COMMAND.size, 1)
            if len(message) < COMMAND.size:
                return
            command, pid = COMMAND.unpack(message)
            if command == FORK:
                reply = _fork(control, descriptors[0], preparation, base_seconds)
                children.add(reply)
            else:
                children.remove(pid)
                reply = _end(pid)
            control.sendall(REPLY.pack(reply))
    finally:
        for pid in children:
            _end(pid)


def _load(setup: Setup) -> Preparation:
    vocabulary = Vocabulary.load(setup.model)
    template, _ = model_template(vocabulary, setup.chat_template)
    prepare(vocabulary)
    preparation = Preparation(vocabulary, template, setup.chat, setup.limits)
    vocabulary.tokenize("", add_special=True, parse_special=True)  # fills caches that all workers share
    return preparation


def _fork(control: socket.socket, descriptor: int, preparation: Preparation, base_seconds: float) -> int:
    with socket.socket(fileno=descriptor) as connection:
        work = functools.partial(run_worker, connection, preparation, base_seconds)
        return fork(work, [control.fileno()])


def _end(pid: int) -> int:
    # Not reaped yet, so no other process has its id.
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _read(control: socket.socket, n: int) -> bytes:
    """Raises ConnectionResetError if the front closes the socket before."""
    data = b""
    while len(data) < n:
        if not (more := control.recv(n - len(data))):
            raise ConnectionResetError
        data += more
    return data
