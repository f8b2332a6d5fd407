"""Checks whether a llama.cpp RPC worker answers, by its protocol's greeting.

llama.cpp itself ends the process if a worker does not answer as expected, and waits forever if it does not
answer at all.
"""

import socket
import struct
import time

from shared.errors import AwayError, DuoError
from shared.settings.server_url import split_address

VERSION = (7, 0)
"""RPC_PROTO_MAJOR_VERSION and RPC_PROTO_MINOR_VERSION in ggml-rpc.h."""
_HELLO = 14
_N_CAPABILITIES = 24
_REQUEST = struct.pack("<BQ", _HELLO, _N_CAPABILITIES) + bytes(_N_CAPABILITIES)
_REPLY = struct.Struct(f"<Q4B{_N_CAPABILITIES}s")
_WHY_SILENT = "it hangs, serves another lead, or is named twice. A worker serves one connection at a time"


class WorkerAwayError(AwayError):
    """A worker cannot be reached now; a retry may succeed later."""


class ForeignWorkerError(DuoError):
    """The server at an address is not a worker that this llama.cpp can use."""


def probe(address: str, seconds: float) -> socket.socket:
    """Greet the worker at host:port; raises WorkerAwayError, ForeignWorkerError.

    The worker serves no other lead until the returned connection is closed.
    """
    deadline = time.monotonic() + seconds
    host, port = split_address(address)
    try:
        connection = socket.create_connection((socket.gethostbyname(host), port), timeout=seconds)
        try:
            connection.sendall(_REQUEST)
            _check(address, _read(connection, _REPLY.size, deadline))
        except BaseException:
            connection.close()
            raise
    except TimeoutError as error:
        raise WorkerAwayError(f"RPC worker {address} does not answer: {_WHY_SILENT}") from error
    except OSError as error:
        raise WorkerAwayError(f"RPC worker {address} cannot be reached: {error}") from error
    return connection


def _check(address: str, reply: bytes) -> None:
    """Raise WorkerAwayError for an empty reply, which means that the worker is ending; ForeignWorkerError for
    a wrong reply.
    """
    if not reply:
        raise WorkerAwayError(f"RPC worker {address} has closed the connection")
    size, major, minor, *_ = _REPLY.unpack(reply.ljust(_REPLY.size, b"\0"))
    if len(reply) < _REPLY.size or size != _REPLY.size - struct.calcsize("<Q"):
        raise ForeignWorkerError(f"the program at {address} is not an RPC worker of llama.cpp")
    own_major, own_minor = VERSION
    if major != own_major or minor > own_minor:
        raise ForeignWorkerError(
            f"RPC worker {address} speaks version {major}.{minor} of llama.cpp's RPC protocol, but "
            f"this lead uses version {own_major}.{own_minor}. Install the same llama-cpp-python on "
            "both machines"
        )


def _read(connection: socket.socket, n_bytes: int, deadline: float) -> bytes:
    """Read `n_bytes`, or fewer if the connection ends before; raises TimeoutError."""
    received = b""
    while len(received) < n_bytes:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        if not (piece := connection.recv(n_bytes - len(received))):
            break
        received += piece
    return received
