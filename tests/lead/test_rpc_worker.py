import llama_cpp
import pytest
from pydantic import ValidationError

from lead import rpc_worker
from lead.rpc_worker import RpcWorkerSettings
from shared.errors import ConfigError
from shared.llama import rpc_backend


def test_it_listens_on_loopback_unless_told_otherwise():
    assert RpcWorkerSettings.from_options().host == "127.0.0.1"


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
    with (
        rpc_worker.listen("127.0.0.1", 0) as taken,
        pytest.raises(SystemExit, match="cannot listen on"),
    ):
        rpc_worker.main(["--port", str(taken.getsockname()[1])])


def test_it_offers_its_devices_at_its_address(monkeypatch, tmp_path):
    served = []
    monkeypatch.setattr(rpc_backend, "require", lambda: None)
    monkeypatch.setattr(rpc_backend, "serve", lambda *arguments: served.append(arguments))
    monkeypatch.setattr(rpc_worker.signal, "signal", lambda *_: None)
    cache = tmp_path / "kept"
    with rpc_worker.listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConfigError, match="cannot serve"):
        rpc_worker.serve(
            RpcWorkerSettings.from_options(device="CUDA0,CPU", port=port, threads=3, cache=cache)
        )
    assert served == [(f"127.0.0.1:{port}", ("CUDA0", "CPU"), 3, cache)]
    assert cache.is_dir()
