"""One worker: a forked process that does jobs until the front closes its socket."""

import contextlib
import logging
import os
import signal
import socket
import threading

from lead.tokenizer.jobs import HEADER, Refusal, decode, encode
from lead.tokenizer.preparation import Preparation
from lead.tokenizer.work_limits import (
    MEGABYTE,
    STACK_BYTES,
    JobLimits,
    forbid_core_dumps,
    limit_data,
    limit_time,
    peak_memory,
    reserved_data,
)
from shared.errors import RequestError

log = logging.getLogger("tokenizer")

_MOST_GROWTH_BYTES = 32 * MEGABYTE
"""A worker that has become larger than this by a job ends: the next one is forked in milliseconds."""


def run_worker(connection: socket.socket, preparation: Preparation, base_seconds: float) -> None:
    """Do jobs; the process ends here."""
    # CPU time is counted in this way on a busy machine, too, and nothing in native code can delay the end.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    forbid_core_dumps()
    threading.stack_size(STACK_BYTES)
    loop = threading.Thread(target=_serve, args=(connection, preparation, base_seconds))
    loop.start()
    loop.join()
    os._exit(0)


def _serve(connection: socket.socket, preparation: Preparation, base_seconds: float) -> None:
    reserved, peak, is_last = reserved_data(), peak_memory(), False
    while not is_last and (data := _receive(connection)) is not None:
        limits = JobLimits.of(len(data), base_seconds)
        limit_time(limits.cpu_seconds)
        limit_data(reserved and reserved + limits.heap_bytes)
        answer = _answer(preparation, data)
        limit_time(0)
        is_last = peak_memory() > peak + _MOST_GROWTH_BYTES
        _send(connection, encode(answer, is_last=is_last))


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
