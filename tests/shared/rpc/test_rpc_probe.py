import socket
import struct
import threading
import time

import pytest

from shared.rpc import rpc_probe
from shared.rpc.rpc_probe import VERSION, ForeignWorkerError, WorkerAwayError, probe
from shared.settings.server_url import split_address

HELLO_BYTES = 1 + 8 + 24
MAJOR, MINOR = VERSION


def greeting(major=MAJOR, minor=MINOR, size=28):
    return struct.pack("<Q4B", size, major, minor, 0, 0) + bytes(24)


@pytest.fixture
def answering():
    """A function that starts a listener and returns its address.

    The listener serves `n` connections, one after the other. It sends `reply` after each greeting, or nothing
    if
    this is None.
    """
    listeners, threads = [], []

    def start(reply, heard=None, n=1):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve():
            for _ in range(n):
                connection, _ = listener.accept()
                with connection:
                    received = connection.recv(HELLO_BYTES)
                    if heard is not None:
                        heard.append(received)
                    if reply:
                        connection.sendall(reply)
                    if reply in {None, greeting()}:
                        connection.recv(1)  # until the other side is done

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(60)
    for listener in listeners:
        listener.close()


def test_a_worker_of_this_version_is_there(answering):
    heard = []
    probe(answering(greeting(), heard), 60).close()
    assert heard == [bytes([14]) + (24).to_bytes(8, "little") + bytes(24)]


def test_nothing_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(WorkerAwayError, match="cannot be reached"):
        probe(f"127.0.0.1:{port}", 60)


def test_a_host_that_nobody_knows_may_be_known_later():
    with pytest.raises(WorkerAwayError, match="cannot be reached"):
        probe("no-such-host.invalid:1", 60)


def test_a_worker_that_hangs_or_is_busy(answering):
    with pytest.raises(WorkerAwayError, match="serves one connection at a time"):
        probe(answering(None), 0.05)


def test_a_worker_that_is_held_answers_nobody_else(answering):
    address = answering(greeting(), n=2)
    with probe(address, 60), pytest.raises(WorkerAwayError, match="is named twice"):
        probe(address, 0.05)


def test_a_worker_that_sends_byte_after_byte_gets_no_more_time():
    near, far = socket.socketpair()
    with near, far:
        far.sendall(greeting()[:5])
        with pytest.raises(TimeoutError):
            rpc_probe._read(near, len(greeting()), deadline=time.monotonic())


def test_a_worker_that_is_ending_has_closed_the_connection(answering):
    with pytest.raises(WorkerAwayError, match="closed"):
        probe(answering(b""), 60)


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(40), greeting(size=4), greeting()[:20], b"\x00"]
)
def test_something_else_is_foreign(answering, reply):
    with pytest.raises(ForeignWorkerError, match="not an RPC worker"):
        probe(answering(reply), 60)


@pytest.mark.parametrize("version", [(MAJOR + 1, MINOR), (MAJOR - 1, MINOR), (MAJOR, MINOR + 1)])
def test_another_version_is_named(answering, version):
    with pytest.raises(ForeignWorkerError, match="version {}.{} of".format(*version)):
        probe(answering(greeting(*version)), 60)


@pytest.mark.parametrize(
    "address", ["host", ":1", "host:", "host:0", "host:65536", "host:x", "[::1]:1", "::1:1", "host:²"]
)
def test_an_address_is_a_name_or_ipv4_and_a_port(address):
    with pytest.raises(ValueError, match="host:port"):
        split_address(address)


def test_an_address_is_split():
    assert split_address("desk1:50052") == ("desk1", 50052)
