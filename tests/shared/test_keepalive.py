import socket
import sys

import pytest

from shared import descriptors, keepalive


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def options(accepted):
    return {
        name: accepted.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
        for name in keepalive._OPTIONS
        if hasattr(socket, name)
    }


@pytest.mark.skipif(sys.platform != "linux", reason="what is inherited is shown for Linux")
def test_connections_to_a_port_of_this_process_are_watched_whoever_opened_it(listener):
    port = listener.getsockname()[1]
    keepalive._watch_port(port)
    with socket.create_connection(("127.0.0.1", port)):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert options(accepted) == {
                "TCP_KEEPIDLE": 15,
                "TCP_KEEPINTVL": 5,
                "TCP_KEEPCNT": 3,
                "TCP_USER_TIMEOUT": 30_000,
            }


def test_no_socket_is_left_open(listener):
    n_before = descriptors.n_open()
    keepalive._watch_port(listener.getsockname()[1])
    assert descriptors.n_open() == n_before


def test_a_connection_to_such_a_port_is_not_taken_for_the_listener(listener):
    address = listener.getsockname()
    with socket.create_connection(address):
        accepted, _ = listener.accept()
        listener.close()
        with accepted:
            assert keepalive._own_listener(address[1]) is None
