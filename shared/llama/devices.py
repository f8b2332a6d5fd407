"""The devices that llama.cpp can compute on in this process: CPU, GPUs, and devices of RPC workers.

`shared.placement` decides which layers each device gets.
"""

import ctypes
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shared.errors import ModelLoadError
from shared.free_memory import free_memory
from shared.llama import library
from shared.llama.native import llama_cpp
from shared.llama.placement import BESIDE_GPU, CPU, FIRST_GPU, Device
from shared.llama.unbound import DeviceProperties, GgmlInitParameters, function
from shared.sandbox import NO_GPU
from shared.settings.model_options import ModelOptions

_GPU, _INTEGRATED_GPU = 1, 2
"""Values of ggml_backend_dev_type."""
_RPC: Final = "RPC"
METAL: Final = "MTL"
"""ggml's names of these backends."""
_NONE: Final = ("none",)
_MIB = 1 << 20
_TENSOR_BYTES = 1 << 12
"""A number of bytes that is enough for a ggml_context with one tensor."""


def descriptions() -> list[str]:
    """Return name and model of each device; equal lists mean that two processes compute on the same
    devices.
    """
    library.start()
    try:
        found = [_properties(device) for device in pointers()]
        return [f"{each.name.decode()}: {each.description.decode('utf-8', 'replace')}" for each in found]
    except AttributeError:  # as in `has_gpu`
        return ["GPU"] if has_gpu() else []


remote: set[str] = set()
"""Other machines, whose devices the models of this process use by default."""


def hide_gpus() -> None:
    """Make llama.cpp find no GPU in this process; the children of this process still find GPUs.

    Call it before any other function of this module.
    """
    before = {name: os.environ.get(name) for name in NO_GPU}
    os.environ.update(NO_GPU)
    try:
        has_gpu()  # llama.cpp opens the drivers when it is first asked for its devices
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def has_gpu() -> bool:
    """Return whether this machine has a GPU that llama.cpp can use; GPUs of RPC workers do not count."""
    library.start()
    try:
        return any(_is_own_gpu(device) for device in pointers())
    except AttributeError:  # another build, whose libraries do not export the functions for that
        return bool(llama_cpp.llama_supports_gpu_offload())


def pointers() -> list[int]:
    """Return pointers to the devices, each a ggml_backend_dev_t."""
    return [function("ggml_backend_dev_get")(i) for i in range(function("ggml_backend_dev_count")())]


def array(found: Sequence[int]) -> Any:
    """Return a NULL-terminated array for llama_model_params.devices; without devices: only the CPU."""
    return (ctypes.c_void_p * (len(found) + 1))(*found, None)


def named(wanted: Sequence[str], option: str, *, only_gpus: bool = False) -> list[int]:
    """Return the devices with these names, in this order; raises ModelLoadError."""
    library.start()
    try:
        found = [device for device in pointers() if not only_gpus or _is_gpu(device)]
        known = {function("ggml_backend_dev_name")(device).decode(): device for device in found}
    except AttributeError as error:  # as in `has_gpu`
        raise ModelLoadError(f"{option}: this build of llama.cpp does not list its devices") from error
    if unknown := [name for name in wanted if name not in known]:
        there_are = f"available: {', '.join(known)}" if known else "no device is available"
        raise ModelLoadError(f"{option} {','.join(unknown)}: {there_are}")
    return [known[name] for name in wanted]


def chosen(options: ModelOptions) -> list[int] | None:
    """Return the devices that may be used with these options: this machine's GPUs, or the devices of
    --device.

    Empty: --n-gpu-layers 0, --device none, or no GPU. None: this build cannot list devices, and llama.cpp
    chooses. Raises ModelLoadError if --device names an unknown device, or if --main-gpu, --tensor-split or
    --split-mode contradict the devices.
    """
    library.start()
    if options.n_gpu_layers == 0 or options.device == _NONE:
        return []
    try:
        found = named(options.device, "--device", only_gpus=True) if options.device else _own_gpus()
    except AttributeError:  # as in `has_gpu`
        return None
    if not found:  # without a GPU, options for GPUs do nothing, as in llama.cpp
        return []
    _check_split(options, found)
    return [found[options.main_gpu]] if options.split_mode == "none" else found


def describe(found: Sequence[int]) -> list[Device]:
    """Return the names of devices, and their memory."""
    return [_describe(device) for device in found]


def own_gpus() -> list[Device]:
    """Return the GPUs of this machine; none if this build cannot list them."""
    library.start()
    try:
        return describe(_own_gpus())
    except AttributeError:  # as in `has_gpu`
        return []


def located(n_bytes: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes by device.

    FIRST_GPU stands for the first GPU, or for the CPU if there is no GPU. BESIDE_GPU stands for the CPU if
    there is a GPU; without a GPU it is left out.
    """
    gpu = next((device.name for device in own_gpus()), CPU)
    names = {FIRST_GPU: gpu, BESIDE_GPU: BESIDE_GPU if gpu == CPU else CPU}
    found = Counter[str]()
    for place, n in n_bytes.items():
        found[names.get(place, place)] += n
    return {place: n for place, n in found.items() if n and place != BESIDE_GPU}


def all_devices() -> list[Device]:
    """Return the devices that a model can be offloaded to; raises ModelLoadError."""
    library.start()
    try:
        return describe([device for device in pointers() if _is_gpu(device)])
    except AttributeError as error:  # as in `has_gpu`
        raise ModelLoadError("this build of llama.cpp does not list its devices") from error


def buffer_names(found: Sequence[int]) -> dict[str, str]:
    """Return the names of devices, by the names of their buffers in llama.cpp's log."""
    kinds = {device: function("ggml_backend_dev_buffer_type")(device) for device in found}
    return {
        function("ggml_backend_buft_name")(kind).decode(): _properties(device).name.decode()
        for device, kind in kinds.items()
        if kind
    }


def buffer_type(name: str) -> int:
    """Return the ggml_backend_buffer_type_t of a device or of CPU; raises ModelLoadError."""
    (device,) = named([name], "--override-tensor")
    kind: int = function("ggml_backend_dev_buffer_type")(device)
    return kind


def pinned_buffer_type(name: str) -> int | None:
    """Return the ggml_backend_buffer_type_t of pinned host memory, which this device copies quickly.

    None: the device has none.
    """
    (device,) = named([name], "--device")
    kind: int | None = function("ggml_backend_dev_host_buffer_type")(device)
    return kind


def _check_split(options: ModelOptions, found: Sequence[int]) -> None:
    all_names = ", ".join(device.name for device in describe(found))
    if options.main_gpu >= len(found):
        raise ModelLoadError(f"--main-gpu {options.main_gpu}: the first device is 0. Available: {all_names}")
    if len(options.tensor_split) > len(found):
        raise ModelLoadError(
            f"--tensor-split has {len(options.tensor_split)} shares for {len(found)} devices: {all_names}"
        )
    if options.split_mode == "row" and (unable := [each for each in found if not _splits_rows(each)]):
        raise ModelLoadError(
            f"--split-mode row: {', '.join(device.name for device in describe(unable))} cannot "
            "split the rows of a tensor. Use --split-mode layer"
        )


def _own_gpus() -> list[int]:
    """Return the GPUs that llama.cpp chooses by default: each once, and integrated GPUs only if there are no
    others.

    If several backends list the same device, the device of the first backend is used.
    """
    gpus: list[int] = []
    integrated: list[int] = []
    seen: set[bytes] = set()
    for device in filter(_is_own_gpu, pointers()):
        if _type(device) == _INTEGRATED_GPU:
            if not integrated or _backend(device) == _backend(integrated[-1]):
                integrated.append(device)
            continue
        identity = _properties(device).device_id
        if identity is None or identity not in seen:
            gpus.append(device)
        if identity is not None:
            seen.add(identity)
    return gpus or integrated


def _describe(device: int) -> Device:
    properties = _properties(device)
    n_free, n_total = properties.memory_free, properties.memory_total
    is_shared = _type(device) == _INTEGRATED_GPU or _backend(device) == METAL
    if n_total == 0:  # the device reports none: llama.cpp supposes that it uses the host's memory
        n_free = n_total = free_memory()
        is_shared = True
    return Device(
        properties.name.decode(),
        properties.description.decode("utf-8", "replace"),
        free=n_free,
        total=n_total,
        is_shared=is_shared,
        max_tensor=_max_tensor(device, n_total),
    )


def _max_tensor(device: int, n_total: int) -> int:
    """Return the size of the largest tensor that a device can hold, accurate to a MiB; llama.cpp aborts if a
    cache is larger.
    """
    minimum, maximum = 0, n_total // _MIB
    if _can_hold(device, maximum):
        return n_total
    while maximum - minimum > 1:
        middle = (minimum + maximum) // 2
        minimum, maximum = (middle, maximum) if _can_hold(device, middle) else (minimum, middle)
    return minimum * _MIB


def _can_hold(device: int, n_mib: int) -> bool:
    context = function("ggml_init")(GgmlInitParameters(_TENSOR_BYTES, None, True))
    tensor = function("ggml_new_tensor_1d")(context, llama_cpp.GGML_TYPE_F16, n_mib * _MIB // 2)
    holds: bool = function("ggml_backend_dev_supports_op")(device, tensor)
    function("ggml_free")(context)
    return holds


def _splits_rows(device: int) -> bool:
    registry = function("ggml_backend_dev_backend_reg")(device)
    return bool(function("ggml_backend_reg_get_proc_address")(registry, b"ggml_backend_split_buffer_type"))


def _properties(device: int) -> DeviceProperties:
    properties = DeviceProperties()
    function("ggml_backend_dev_get_props")(device, ctypes.byref(properties))
    return properties


def _type(device: int) -> int:
    kind: int = function("ggml_backend_dev_type")(device)
    return kind


def _backend(device: int) -> str:
    name: bytes = function("ggml_backend_reg_name")(function("ggml_backend_dev_backend_reg")(device))
    return name.decode()


def _is_gpu(device: int) -> bool:
    return _type(device) in {_GPU, _INTEGRATED_GPU}


def _is_own_gpu(device: int) -> bool:
    return _is_gpu(device) and _backend(device) != _RPC
