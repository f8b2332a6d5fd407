import os

import llama_cpp
import pytest

from shared.diagnostics.preflight import list_devices
from shared.errors import ModelLoadError
from shared.llama import devices
from shared.llama.placement import BESIDE_GPU, FIRST_GPU, Device
from shared.settings.model_options import ModelOptions

CPU, GPU, INTEGRATED = 0, 1, 2


@pytest.fixture
def machine(monkeypatch):
    """Makes ggml report these devices: (name, type, backend), and further facts by their names."""

    def have(*found, **facts):
        def tell(device, properties):
            name, kind, _ = found[device - 1]
            given = {
                "memory_free": 6 << 30,
                "memory_total": 8 << 30,
                "device_id": None,
                **facts.get(name, {}),
            }
            for key, value in {"name": name.encode(), "description": b"a GPU", "type": kind, **given}.items():
                setattr(properties._obj, key, value)

        answers = {
            "ggml_backend_dev_count": lambda: len(found),
            "ggml_backend_dev_get": lambda i: 1 + i,
            "ggml_backend_dev_backend_reg": lambda device: device,
            "ggml_backend_dev_name": lambda device: found[device - 1][0].encode(),
            "ggml_backend_dev_type": lambda device: found[device - 1][1],
            "ggml_backend_dev_get_props": tell,
            "ggml_backend_dev_buffer_type": lambda device: 100 + device,
            "ggml_backend_buft_name": lambda kind: f"{found[kind - 101][0]}_Private".encode(),
            "ggml_backend_reg_name": lambda device: found[device - 1][2].encode(),
            "ggml_backend_reg_get_proc_address": lambda device, _: found[device - 1][2] == "CUDA",
            "ggml_init": lambda _: 1,
            "ggml_free": lambda _: None,
            "ggml_new_tensor_1d": lambda *given: 2 * given[2],
            "ggml_backend_dev_supports_op": lambda _, n_bytes: n_bytes <= facts.get("maximum", 1 << 40),
        }
        monkeypatch.setattr(devices, "function", answers.get)

    return have


@pytest.fixture
def silent_build(monkeypatch):
    """A build that exports no functions for devices, as on Windows."""

    def missing(*_):
        raise AttributeError

    monkeypatch.setattr(devices, "function", missing)


@pytest.mark.parametrize(
    ("gpu", "is_found"),
    [(("CUDA0", GPU, "CUDA"), True), (("CUDA0", INTEGRATED, "CUDA"), True), (("RPC0", GPU, "RPC"), False)],
    ids=["of its own", "integrated", "behind RPC, of another machine"],
)
def test_a_gpu_of_this_machine_is_found(machine, gpu, is_found):
    machine(("CPU", CPU, "CPU"), gpu)
    assert devices.has_gpu() == is_found


@pytest.mark.usefixtures("silent_build")
@pytest.mark.parametrize("says", [True, False])
def test_where_ggml_cannot_be_asked_llama_cpp_says_whether_there_is_a_gpu(monkeypatch, says):
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: says)
    assert devices.has_gpu() is says


PAIR = (("CUDA0", GPU, "CUDA"), ("CPU", CPU, "CPU"), ("CUDA1", GPU, "CUDA"))


def names_of(found):
    return [device.name for device in devices.describe(found)]


def chosen(**options):
    return names_of(devices.chosen(ModelOptions(**options)))


def test_a_model_gets_the_gpus_of_this_machine(machine):
    machine(("RPC0", GPU, "RPC"), *PAIR)
    assert chosen() == ["CUDA0", "CUDA1"]


def test_without_gpus_it_gets_none(machine):
    machine(("CPU", CPU, "CPU"), ("RPC0", GPU, "RPC"))
    assert chosen(main_gpu=3, split_mode="none", tensor_split=(1, 2)) == []


def test_an_integrated_one_is_used_only_if_there_is_no_other(machine):
    machine(("Vulkan0", INTEGRATED, "Vulkan"), ("Vulkan1", GPU, "Vulkan"))
    assert chosen() == ["Vulkan1"]
    machine(("Vulkan0", INTEGRATED, "Vulkan"), ("SYCL0", INTEGRATED, "SYCL"))
    assert chosen() == ["Vulkan0"]


def test_a_gpu_that_two_backends_know_is_used_once(machine):
    machine(
        ("CUDA0", GPU, "CUDA"),
        ("Vulkan0", GPU, "Vulkan"),
        ("Vulkan1", GPU, "Vulkan"),
        CUDA0={"device_id": b"0000:01:00.0"},
        Vulkan0={"device_id": b"0000:01:00.0"},
        Vulkan1={"device_id": b"0000:02:00.0"},
    )
    assert chosen() == ["CUDA0", "Vulkan1"]


@pytest.mark.parametrize("options", [{"n_gpu_layers": 0}, {"device": ("none",)}])
def test_without_layers_no_device_is_opened(machine, options):
    machine(*PAIR)
    assert chosen(**options) == []


def test_devices_are_chosen_by_name_and_in_that_order(machine):
    machine(*PAIR, ("RPC0", GPU, "RPC"))
    assert chosen(device=("RPC0", "CUDA1")) == ["RPC0", "CUDA1"]
    assert chosen(split_mode="none", main_gpu=1) == ["CUDA1"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": ("CUDA9",)}, "--device CUDA9: available: CUDA0, CUDA1"),
        ({"device": ("CPU",)}, "--device CPU: available: CUDA0, CUDA1"),
        ({"main_gpu": 2}, "--main-gpu 2: the first device is 0. Available: CUDA0, CUDA1"),
        ({"tensor_split": (1, 1, 1)}, "--tensor-split has 3 shares for 2 devices: CUDA0, CUDA1"),
    ],
)
def test_what_contradicts_the_devices_is_refused_with_their_names(machine, options, sentence):
    machine(*PAIR)
    with pytest.raises(ModelLoadError, match=sentence):
        chosen(**options)


def test_without_a_device_none_can_be_named(machine):
    machine(("CPU", CPU, "CPU"))
    with pytest.raises(ModelLoadError, match="--device CUDA0: no device is available"):
        chosen(device=("CUDA0",))
    assert list_devices() == "Available devices:\n  (none)"


def test_rows_are_split_only_where_the_backend_can(machine):
    machine(*PAIR)
    assert chosen(split_mode="row") == ["CUDA0", "CUDA1"]
    machine(("Vulkan0", GPU, "Vulkan"))
    with pytest.raises(ModelLoadError, match="Vulkan0 cannot split the rows of a tensor"):
        chosen(split_mode="row")


@pytest.mark.usefixtures("silent_build")
def test_a_build_that_does_not_tell_leaves_the_choice_to_llama_cpp():
    assert devices.chosen(ModelOptions()) is None
    assert devices.buffer_names(devices.chosen(ModelOptions(n_gpu_layers=0))) == {}
    devices.hide_gpus()


@pytest.mark.usefixtures("silent_build")
@pytest.mark.parametrize("ask", [devices.all_devices, lambda: devices.buffer_type("CPU")])
def test_what_needs_names_says_that_there_are_none(ask):
    with pytest.raises(ModelLoadError, match="does not list its devices"):
        ask()
    assert "does not list its devices" in list_devices()


def test_a_device_is_described_with_its_memory(machine):
    machine(("CUDA0", GPU, "CUDA"), maximum=5 << 30)
    assert devices.all_devices() == [
        Device("CUDA0", "a GPU", free=6 << 30, total=8 << 30, max_tensor=5 << 30)
    ]


@pytest.mark.parametrize(("kind", "backend"), [(INTEGRATED, "Vulkan"), (GPU, "MTL")])
def test_memory_that_the_host_has_too_is_known_as_such(machine, kind, backend):
    machine(("X0", kind, backend))
    assert devices.all_devices()[0].is_shared


def test_a_device_that_does_not_tell_how_much_memory_it_has_gets_the_hosts(machine, monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda: 3 << 30)
    machine(("X0", GPU, "X"), X0={"memory_free": 0, "memory_total": 0})
    (found,) = devices.all_devices()
    assert (found.free, found.is_shared) == (3 << 30, True)


def test_buffers_are_known_by_their_device(machine):
    machine(*PAIR)
    assert devices.buffer_names([1, 3]) == {"CUDA0_Private": "CUDA0", "CUDA1_Private": "CUDA1"}


def test_a_buffer_that_is_not_there_is_refused_with_those_that_are(machine):
    machine(*PAIR)
    assert devices.buffer_type("CPU") == 102
    with pytest.raises(ModelLoadError, match="--override-tensor CUDA7: available: CUDA0, CPU, CUDA1"):
        devices.buffer_type("CUDA7")


def test_another_card_is_another_device(machine):
    machine(("CUDA0", GPU, "CUDA"), ("CPU", CPU, "CPU"))
    assert devices.descriptions() == ["CUDA0: a GPU", "CPU: a GPU"]


def test_while_llama_cpp_looks_for_devices_no_driver_can_be_found_but_by_children(monkeypatch):
    seen = {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv("VK_DRIVER_FILES", raising=False)
    monkeypatch.setattr(devices, "has_gpu", lambda: seen.update(os.environ))
    devices.hide_gpus()
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["VK_DRIVER_FILES"]) == ("", os.devnull)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "VK_DRIVER_FILES" not in os.environ


def test_memory_for_the_first_gpu_is_the_hosts_where_there_is_none(machine):
    taken = {"CPU": 1, FIRST_GPU: 2, BESIDE_GPU: 4}
    machine(("CUDA0", GPU, "CUDA"), ("CUDA1", GPU, "CUDA"))
    assert devices.located(taken) == {"CPU": 5, "CUDA0": 2}
    machine(("CPU", CPU, "CPU"))
    assert devices.located(taken) == {"CPU": 3}
    assert devices.located({}) == {}
