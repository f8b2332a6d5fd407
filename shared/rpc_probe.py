"""Asks whether a llama.cpp RPC worker is there: the greeting of its protocol, and nothing more.

llama.cpp itself ends the process if a worker does not answer as expected, and waits for ever if it does not
answer at all.
"""

import socket
import struct

from shared.errors import DuoError

VERSION = 7
"""RPC_PROTO_MAJOR_VERSION in ggml-rpc.h."""
_HELLO = 14
_N_CAPABILITIES = 24
_REQUEST = struct.pack("<BQ", _HELLO, _N_CAPABILITIES) + bytes(_N_CAPABILITIES)
_REPLY = struct.Struct(f"<Q4B{_N_CAPABILITIES}s")
_HOW_MANY_SERVED = "it hangs, or it computes for another lead: a worker serves one at a time"


class WorkerAwayError(DuoError):
    """A worker cannot be reached now; it may be later."""


class ForeignWorkerError(DuoError):
    """What listens there is not a worker that this llama.cpp can use."""


def split_address(address: str) -> tuple[str, int]:
    """host:port; raises ValueError. llama.cpp has IPv4 only."""
    host, _, port = address.rpartition(":")
    if not host or ":" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address!r} is not host:port (a name or an IPv4 address)")
    return host, int(port)


def probe(address: str, seconds: float) -> None:
    """Greet the worker at host:port; raises WorkerAwayError, ForeignWorkerError."""
    try:
        with socket.create_connection(split_address(address), timeout=seconds) as connection:
            connection.sendall(_REQUEST)
            reply = _read(connection, _REPLY.size)
    except TimeoutError as error:
        raise WorkerAwayError(f"RPC worker {address} does not answer: {_HOW_MANY_SERVED}") from error
    except OSError as error:
        raise WorkerAwayError(f"RPC worker {address} cannot be reached: {error}") from error
    _check(address, reply)


def _check(address: str, reply: bytes) -> None:
    """An empty reply is a worker that is ending."""
    if not reply:
        raise WorkerAwayError(f"RPC worker {address} has closed the connection")
    size, major, *_ = _REPLY.unpack(reply.ljust(_REPLY.size, b"\0"))
    if len(reply) < _REPLY.size or size != _REPLY.size - struct.calcsize("<Q"):
        raise ForeignWorkerError(f"what listens at {address} is not an RPC worker of llama.cpp")
    if major != VERSION:
        raise ForeignWorkerError(
            f"RPC worker {address} speaks version {major} of llama.cpp's RPC protocol, this lead version "
            f"{VERSION}: install the same llama-cpp-python on both"
        )


def _read(connection: socket.socket, n_bytes: int) -> bytes:
    """As many bytes, or fewer if the connection ends before."""
    received = b""
    while len(received) < n_bytes and (piece := connection.recv(n_bytes - len(received))):
        received += piece
    return received
