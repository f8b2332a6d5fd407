"""llama.cpp's parameter structures for a model and its context."""

import ctypes
from collections.abc import Sequence
from typing import Any

from shared.llama import devices
from shared.llama.native import llama_cpp
from shared.llama.placement import CPU, EXPERTS_PATTERN
from shared.llama.unbound import TensorOverride
from shared.settings.model_options import (
    DEFAULT_BATCH,
    DEFAULT_SLOTS,
    MIN_BATCH,
    UNQUANTIZED,
    CacheType,
    ModelOptions,
)

_GGML_TYPE_BF16 = 30
"""The number of bf16 in ggml.h; llama_cpp has no name for it."""
_MAX_LAYERS = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""
_NO_TENSOR = ("^$", CPU)
"""An override that matches no tensor. Its only effect is that devices compute one ubatch of a batch at a
time.
"""


def model_parameters(options: ModelOptions, *, with_workers: bool = False) -> Any:
    """Return a llama_model_params; raises ModelLoadError. with_workers: use RPC workers, too."""
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = options.n_gpu_layers
    parameters.use_extra_bufts = options.repack
    parameters.load_mode = llama_cpp.llama_load_mode_from_str(options.load_mode.encode())
    parameters.split_mode = getattr(llama_cpp, f"LLAMA_SPLIT_MODE_{options.split_mode.upper()}")
    parameters.main_gpu = options.main_gpu
    kept: list[Any] = []
    chosen = None if with_workers and not options.device else devices.chosen(options)
    if chosen is not None:
        kept.append(devices.array(chosen))
        parameters.devices = ctypes.cast(kept[-1], ctypes.c_void_p)
        parameters.main_gpu = 0  # the first of the chosen devices
    if options.tensor_split:
        n_devices = llama_cpp.llama_max_devices()
        # ctypes keeps the array alive as long as the parameters
        parameters.tensor_split = (ctypes.c_float * n_devices)(*options.tensor_split[:n_devices])
    if overrides := _overrides(options, chosen or ()):
        kept.append(overrides)
        parameters.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    parameters.kept = kept  # the structure has only pointers to the arrays
    return parameters


def _overrides(options: ModelOptions, chosen: Sequence[int]) -> Any:
    """Return a NULL-terminated array of llama_model_tensor_buft_override; None: no tensor is placed by name.

    Several Vulkan devices are kept from computing ubatches at the same time. When they did, logits were wrong
    in 2 of 5 runs, in 3 of 30 rows, by up to .09. Otherwise no row was wrong in 10 runs. Measured with two
    software devices and batches of four ubatches.
    """
    if not options.n_gpu_layers:
        return None
    placed = [place.partition("=")[::2] for place in options.override_tensor]
    if options.cpu_moe:
        placed.append((EXPERTS_PATTERN, CPU))
    elif options.n_cpu_moe:
        layers = "|".join(map(str, range(min(options.n_cpu_moe, _MAX_LAYERS))))
        placed.append((rf"^blk\.({layers}){EXPERTS_PATTERN}", CPU))
    if len(chosen) > 1 and any(device.name.startswith("Vulkan") for device in devices.describe(chosen)):
        placed.append(_NO_TENSOR)
    if not placed:
        return None
    found = [TensorOverride(pattern.encode(), devices.buffer_type(buffer)) for pattern, buffer in placed]
    return (TensorOverride * (len(found) + 1))(*found, TensorOverride(None, None))


def context_parameters(options: ModelOptions, n_ctx: int, n_slots: int) -> Any:
    """Return a llama_context_params for `n_ctx` cells and `n_slots` sequences."""
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = n_ctx
    n_batch = options.batch_size or DEFAULT_BATCH
    parameters.n_batch = max(n_batch, n_slots)  # at least one token of each slot
    parameters.n_ubatch = min(parameters.n_batch, options.ubatch_size)
    parameters.n_seq_max = n_slots
    parameters.n_threads = options.threads
    parameters.n_threads_batch = options.threads_batch if options.threads_batch > 0 else options.threads
    parameters.kv_unified = options.kv_unified
    parameters.swa_full = options.swa_full
    parameters.type_k = _ggml_type(options.cache_type_k)
    parameters.type_v = _ggml_type(options.cache_type_v)
    parameters.offload_kqv = options.kv_offload
    parameters.op_offload = options.n_gpu_layers != 0  # else batches of 32 tokens and more go to a GPU
    parameters.flash_attn_type = _flash_attention(options, n_slots)
    parameters.no_perf = True
    return parameters


def make_room(parameters: Any, n_sequences: int, n_rollback: int, *, one_ubatch: bool) -> None:
    """Enlarge a llama_context_params for more sequences, or for more states to roll back to (`n_rs_seq`).

    one_ubatch: limit batches to the size of a ubatch.
    """
    # llama.cpp aborts the process if a batch cannot hold one token of each sequence, or 2 + n_rs_seq tokens.
    minimum = max(n_sequences, MIN_BATCH if one_ubatch else 0)
    if n_rollback:  # all drafts in one ubatch
        minimum = max(minimum, parameters.n_seq_max * (n_rollback + 1) + 1)
    parameters.n_seq_max = n_sequences
    parameters.n_rs_seq = n_rollback
    parameters.n_ubatch = max(parameters.n_ubatch, minimum)
    parameters.n_batch = parameters.n_ubatch if one_ubatch else max(parameters.n_batch, parameters.n_ubatch)


def _ggml_type(name: CacheType) -> int:
    return _GGML_TYPE_BF16 if name == "bf16" else int(getattr(llama_cpp, f"GGML_TYPE_{name.upper()}"))


def _flash_attention(options: ModelOptions, n_slots: int) -> int:
    if options.flash_attn == "on" or options.cache_type_v not in UNQUANTIZED:
        return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED)
    if options.flash_attn == "off" or not (is_offloaded(options) or _holds_many_texts(options, n_slots)):
        return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO)


def is_offloaded(options: ModelOptions) -> bool:
    """Return whether a GPU or another machine may compute some of the layers."""
    return options.n_gpu_layers != 0 and (devices.has_gpu() or bool(devices.remote))


def _holds_many_texts(options: ModelOptions, n_slots: int) -> bool:
    """Return whether flash attention is faster on a CPU.

    It skips the cells of other texts, which are otherwise compared with every token. It reads a single text
    equally fast, but continues a long text more slowly, above all with several tokens per step. With the
    default number of slots, continuing texts is most of the work. Slots in addition to `parallel` hold side
    branches. Flash attention's kernel for prompts supports only f16.
    """
    is_f16 = options.cache_type_k == options.cache_type_v == "f16"
    return is_f16 and options.parallel > DEFAULT_SLOTS and n_slots == options.parallel
