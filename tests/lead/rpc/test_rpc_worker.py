import socket
import sys

import llama_cpp
import pytest
from pydantic import ValidationError

from lead.rpc import rpc_worker
from lead.rpc.rpc_worker import RpcWorkerSettings
from shared import descriptors
from shared.errors import ConfigError
from shared.rpc import rpc_backend


def test_an_address_for_others_needs_another_word():
    with pytest.raises(ValidationError, match="--insecure"):
        RpcWorkerSettings.from_options(host="0.0.0.0")
    assert RpcWorkerSettings.from_options(host="0.0.0.0", insecure=True).host == "0.0.0.0"


def test_without_rpc_in_llama_cpp_it_says_how_to_build_it(monkeypatch):
    monkeypatch.setattr(llama_cpp, "llama_supports_rpc", lambda: False)
    with pytest.raises(SystemExit, match=r"lead rpc-worker: .*CMAKE_ARGS=-DGGML_RPC=ON make setup"):
        rpc_worker.main([])


def test_a_port_that_is_taken_is_named(monkeypatch):
    monkeypatch.setattr(rpc_backend, "require", lambda: None)
    with rpc_worker.listen("127.0.0.1", 0) as taken, pytest.raises(SystemExit, match="cannot listen on"):
        rpc_worker.main(["--port", str(taken.getsockname()[1])])


@pytest.fixture
def served(monkeypatch):
    """The calls by which llama.cpp would serve: (address, number of devices, threads, cache)."""
    calls = []

    def serve(address, offered, n_threads, cache):
        calls.append((address, len(offered), n_threads, cache))

    monkeypatch.setattr(rpc_backend, "require", lambda: None)
    monkeypatch.setattr(rpc_backend, "serve", serve)
    monkeypatch.setattr(rpc_worker, "_watch_connections", lambda _: None)
    monkeypatch.setattr(rpc_worker.signal, "signal", lambda *_: None)
    return calls


@pytest.fixture
def free_port():
    with rpc_worker.listen("127.0.0.1", 0) as free:
        return free.getsockname()[1]


def test_it_offers_its_devices_at_its_address(served, free_port, tmp_path):
    cache = tmp_path / "kept"
    with pytest.raises(ConfigError, match="cannot listen"):
        rpc_worker.serve(RpcWorkerSettings.from_options(port=free_port, threads=3, cache=cache))
    assert served == [(f"127.0.0.1:{free_port}", 1, 3, cache)]
    assert cache.is_dir()


def test_a_name_is_looked_up_because_llama_cpp_does_not(served, free_port):
    with pytest.raises(ConfigError, match="cannot listen"):
        rpc_worker.serve(RpcWorkerSettings.from_options(host="localhost", port=free_port))
    assert [address for address, *_ in served] == [f"127.0.0.1:{free_port}"]


def test_an_address_that_is_not_ipv4_is_refused(served):
    with pytest.raises(SystemExit, match="--host ::1 has no IPv4 address"):
        rpc_worker.main(["--host", "::1"])
    assert not served


def test_a_cache_that_cannot_be_made_is_refused(served, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"--cache .*file: File exists"):
        rpc_worker.main(["--cache", str(tmp_path / "file")])
    assert not served


@pytest.mark.parametrize("devices", [",", "CPU,CPU"])
def test_devices_are_named_once_each(devices):
    with pytest.raises(ValidationError, match="each only once"):
        RpcWorkerSettings.from_options(device=devices)


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def options(accepted):
    return {
        name: accepted.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
        for name in rpc_worker._OPTIONS
        if hasattr(socket, name)
    }


@pytest.mark.skipif(sys.platform != "linux", reason="what is inherited is shown for Linux")
def test_connections_to_a_port_of_this_process_are_watched_whoever_opened_it(listener):
    port = listener.getsockname()[1]
    rpc_worker._watch_port(port)
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
    rpc_worker._watch_port(listener.getsockname()[1])
    assert descriptors.n_open() == n_before


def test_a_connection_to_such_a_port_is_not_taken_for_the_listener(listener):
    address = listener.getsockname()
    with socket.create_connection(address):
        accepted, _ = listener.accept()
        listener.close()
        with accepted:
            assert rpc_worker._own_listener(address[1]) is None
