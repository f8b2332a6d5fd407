import ctypes
import os

import llama_cpp
import pytest

from shared.llama import devices

CPU, GPU, INTEGRATED = 0, 1, 2


@pytest.fixture
def machine(monkeypatch):
    """Makes ggml report these devices: (name, type, backend)."""

    def have(*found):
        answers = {
            "ggml_backend_dev_count": lambda: len(found),
            "ggml_backend_dev_get": lambda i: 1 + i,
            "ggml_backend_dev_backend_reg": lambda device: device,
            "ggml_backend_dev_name": lambda device: found[device - 1][0].encode(),
            "ggml_backend_dev_description": lambda device: f"Model {device}".encode(),
            "ggml_backend_dev_type": lambda device: found[device - 1][1],
            "ggml_backend_reg_name": lambda device: found[device - 1][2].encode(),
        }
        monkeypatch.setattr(devices, "function", answers.get)

    return have


@pytest.mark.parametrize("kind", [GPU, INTEGRATED])
def test_a_gpu_is_found(machine, kind):
    machine(("CPU", CPU, "CPU"), ("CUDA0", kind, "CUDA"))
    assert devices.has_gpu()


def test_a_gpu_behind_rpc_is_not_this_machines(machine):
    machine(("CPU", CPU, "CPU"), ("RPC0", GPU, "RPC"))
    assert not devices.has_gpu()


@pytest.mark.parametrize("says", [True, False])
def test_where_ggml_cannot_be_asked_llama_cpp_says_whether_there_is_a_gpu(monkeypatch, says):
    def missing(*_):
        raise AttributeError

    monkeypatch.setattr(devices, "function", missing)
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: says)
    assert devices.has_gpu() is says


def test_a_model_that_stays_here_gets_the_gpus_of_this_machine(machine):
    machine(("RPC0", GPU, "RPC"), ("CUDA0", GPU, "CUDA"), ("CPU", CPU, "CPU"), ("CUDA1", GPU, "CUDA"))
    assert list(devices.own_gpus()) == [2, 4, None]


def test_without_gpus_it_gets_none(machine):
    machine(("CPU", CPU, "CPU"), ("RPC0", GPU, "RPC"))
    assert list(devices.own_gpus()) == [None]
    assert ctypes.cast(devices.own_gpus(), ctypes.c_void_p).value


def test_another_card_is_another_device(machine):
    machine(("CUDA0", GPU, "CUDA"), ("CPU", CPU, "CPU"))
    assert devices.descriptions() == ["CUDA0: Model 1", "CPU: Model 2"]


def test_while_llama_cpp_looks_for_devices_no_driver_can_be_found_but_by_children(monkeypatch):
    seen = {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv("VK_DRIVER_FILES", raising=False)
    monkeypatch.setattr(devices, "names", lambda: seen.update(os.environ))
    devices.hide_gpus()
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["VK_DRIVER_FILES"]) == ("", os.devnull)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "VK_DRIVER_FILES" not in os.environ
