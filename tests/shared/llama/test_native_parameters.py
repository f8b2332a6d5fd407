import ctypes
from types import SimpleNamespace

import pytest

from shared.llama import devices, library
from shared.llama.native_parameters import model_parameters
from shared.llama.unbound import TensorOverride
from shared.settings.model_options import ModelOptions


def overrides(**options):
    """(pattern, buffer type) of each override."""
    library.start()
    parameters = model_parameters(ModelOptions(**{"n_gpu_layers": 3} | options))
    if not parameters.tensor_buft_overrides:
        return []
    found = ctypes.cast(parameters.tensor_buft_overrides, ctypes.POINTER(TensorOverride))
    n = next(i for i in range(100) if not found[i].pattern)
    return [(found[i].pattern.decode(), found[i].buft) for i in range(n)]


def test_tensors_are_placed_in_the_order_of_the_options():
    cpu = devices.buffer_type("CPU")
    expected = [("attn", cpu), ("exps", cpu), (r"^blk\.(0|1)\.ffn_(up|down|gate|gate_up)_(ch|)exps", cpu)]
    assert overrides(override_tensor=("attn=CPU", "exps=CPU"), n_cpu_moe=2) == expected
    assert overrides(cpu_moe=True, n_cpu_moe=2) == [(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", cpu)]


def test_without_layers_in_vram_there_is_nothing_to_place():
    assert overrides() == overrides(n_gpu_layers=0, cpu_moe=True) == []


@pytest.mark.parametrize(
    ("names", "placed"), [(["Vulkan0", "Vulkan1"], ["^$"]), (["Vulkan0"], []), (["CUDA0", "CUDA1"], [])]
)
def test_several_vulkan_devices_do_not_overlap(monkeypatch, names, placed):
    monkeypatch.setattr(devices, "chosen", lambda _: list(range(len(names))))
    monkeypatch.setattr(devices, "describe", lambda found: [SimpleNamespace(name=names[i]) for i in found])
    assert [pattern for pattern, _ in overrides()] == placed


def test_without_layers_in_vram_no_device_is_opened():
    parameters = model_parameters(ModelOptions(n_gpu_layers=0))
    assert ctypes.cast(parameters.devices, ctypes.POINTER(ctypes.c_void_p))[0] is None


def test_beside_rpc_workers_llama_cpp_chooses():
    assert model_parameters(ModelOptions(), with_workers=True).devices is None
