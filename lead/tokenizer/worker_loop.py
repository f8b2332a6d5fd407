"""One worker: a forked process that does jobs until the front closes its socket."""

import contextlib
import logging
import socket
import threading

from lead.tokenizer.jobs import HEADER, Refusal, decode, encode
from lead.tokenizer.preparation import Preparation
from lead.tokenizer.work_limits import STACK_BYTES, JobLimits
from shared.errors import RequestError
from shared.sandbox import Limits

log = logging.getLogger("tokenizer")


def run_worker(connection: socket.socket, preparation: Preparation, base_seconds: float) -> None:
    """Do jobs in a thread, whose stack may be larger than the main one."""
    threading.stack_size(STACK_BYTES)
    loop = threading.Thread(target=_serve, args=(connection, preparation, base_seconds))
    loop.start()
    loop.join()


def _serve(connection: socket.socket, preparation: Preparation, base_seconds: float) -> None:
    limits = Limits()
    while not limits.has_grown and (data := _receive(connection)) is not None:
        allowed = JobLimits.of(len(data), base_seconds)
        limits.set_memory(allowed.heap_bytes)
        with limits.time(allowed.cpu_seconds):
            answer = _answer(preparation, data)
        _send(connection, encode(answer, is_last=limits.has_grown))


def _answer(preparation: Preparation, data: bytearray) -> object:
    try:
        return preparation.do(decode(data))
    except RequestError as error:
        return Refusal(str(error), error.param, error.code)
    except MemoryError:
        return Refusal("preparing this request takes too much memory")
    except Exception as error:
        log.exception("preparing a request failed")
        return Refusal(str(error), is_bug=True)


def _receive(connection: socket.socket) -> bytearray | None:
    """The next message; None at the end."""
    header = _read(connection, HEADER.size)
    return None if header is None else _read(connection, HEADER.unpack(header)[1])


def _read(connection: socket.socket, n: int) -> bytearray | None:
    data = bytearray(n)
    view, got = memoryview(data), 0
    while got < n:
        try:
            received = connection.recv_into(view[got:])
        except ConnectionResetError:
            received = 0
        if not received:
            return None
        got += received
    return data


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # reading says so as well
        connection.sendall(data)
