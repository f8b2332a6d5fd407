"""llama.cpp's parameter structures for a model and its context."""

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp

from shared.errors import ModelLoadError
from shared.llama import devices, rpc_backend
from shared.llama.memory_traits import MemoryTraits
from shared.settings.model_options import (
    DEFAULT_SLOTS,
    MAX_SLOTS,
    MIN_BATCH,
    UNQUANTIZED,
    CacheType,
    ModelOptions,
)

_GGML_TYPE_BF16 = 30
"""ggml.h; llama_cpp has no name for it."""


def model_parameters(options: ModelOptions) -> Any:
    """A llama_model_params."""
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = options.n_gpu_layers
    parameters.use_extra_bufts = options.repack
    parameters.load_mode = llama_cpp.llama_load_mode_from_str(options.load_mode.encode())
    parameters.split_mode = getattr(llama_cpp, f"LLAMA_SPLIT_MODE_{options.split_mode.upper()}")
    parameters.main_gpu = options.main_gpu
    if options.tensor_split:
        n_devices = llama_cpp.llama_max_devices()
        # ctypes keeps the array alive as long as the parameters
        parameters.tensor_split = (ctypes.c_float * n_devices)(*options.tensor_split[:n_devices])
    return parameters


def context_parameters(options: ModelOptions, n_ctx: int, n_slots: int) -> Any:
    """A llama_context_params for `n_ctx` cells and `n_slots` sequences."""
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = n_ctx
    parameters.n_batch = max(options.batch_size, n_slots)  # at least one token of each slot
    parameters.n_ubatch = min(parameters.n_batch, options.ubatch_size)
    parameters.n_seq_max = n_slots
    parameters.n_threads = options.threads
    parameters.n_threads_batch = options.threads_batch if options.threads_batch > 0 else options.threads
    parameters.kv_unified = options.kv_unified
    parameters.swa_full = options.swa_full
    parameters.type_k = _ggml_type(options.cache_type_k)
    parameters.type_v = _ggml_type(options.cache_type_v)
    parameters.offload_kqv = options.kv_offload
    parameters.flash_attn_type = _flash_attention(options, n_slots)
    parameters.no_perf = True
    return parameters


def add_guard_sequences(parameters: Any, path: Path) -> None:
    """Add the sequences of a `WindowGuard`, and limit a batch to one ubatch. Raises ModelLoadError."""
    n_slots, n_most = parameters.n_seq_max, MAX_SLOTS // 2
    if n_slots > n_most:
        raise ModelLoadError(
            f"{path}: a model with a sliding window has at most {n_most} slots in one KV cache, not "
            f"{n_slots}: lower --parallel, or use --no-kv-unified"
        )
    parameters.n_seq_max = 2 * n_slots
    # llama.cpp aborts the process if a batch cannot hold one token of each sequence
    parameters.n_ubatch = max(parameters.n_ubatch, parameters.n_seq_max, MIN_BATCH)
    parameters.n_batch = parameters.n_ubatch


def add_spare_sequence(parameters: Any) -> None:
    """Add a sequence after the slots that shares the cells of a part of one (`StoredStates.store_part`)."""
    parameters.n_seq_max += 1
    # llama.cpp aborts the process if a batch cannot hold one token of each sequence
    parameters.n_ubatch = max(parameters.n_ubatch, parameters.n_seq_max)
    parameters.n_batch = max(parameters.n_batch, parameters.n_ubatch)


def add_state_memory(parameters: Any, traits: MemoryTraits) -> None:
    """Make room for the states that can be returned to."""
    if not traits.can_trim:
        # In one decode, no pass may give away cells that an earlier one has masked.
        parameters.n_ubatch = parameters.n_batch = max(parameters.n_ubatch, MIN_BATCH)
    if traits.n_rollback and traits.equal_lengths:
        parameters.n_rs_seq = traits.n_rollback
        # All drafts in one pass; llama.cpp aborts the process if it cannot hold 2 + n_rs_seq tokens.
        parameters.n_ubatch = max(parameters.n_ubatch, parameters.n_seq_max * (traits.n_rollback + 1) + 1)
        parameters.n_batch = max(parameters.n_batch, parameters.n_ubatch)
    if traits.n_step_checkpoints:
        parameters.n_seq_max *= 1 + traits.n_step_checkpoints
        parameters.n_ubatch = max(parameters.n_ubatch, parameters.n_seq_max)
        parameters.n_batch = max(parameters.n_batch, parameters.n_ubatch)


def _ggml_type(name: CacheType) -> int:
    return _GGML_TYPE_BF16 if name == "bf16" else int(getattr(llama_cpp, f"GGML_TYPE_{name.upper()}"))


def _flash_attention(options: ModelOptions, n_slots: int) -> int:
    if options.flash_attn == "on" or options.cache_type_v not in UNQUANTIZED:
        return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED)
    on_cpu = options.n_gpu_layers == 0 or not (devices.has_gpu() or rpc_backend.has_workers())
    if options.flash_attn == "off" or (on_cpu and not _holds_many_texts(options, n_slots)):
        return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    return int(llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO)


def _holds_many_texts(options: ModelOptions, n_slots: int) -> bool:
    """Whether flash attention is faster on a CPU (docs/performance.md).

    It skips the cells of other texts, which otherwise are compared with every token. One text alone is read
    as fast, and continued more slowly once it is long, by several tokens a step above all: that is most of
    the work where nobody has asked for more slots than the default. More slots than `parallel` hold branches
    of texts. The kernel for prompts knows f16 only.
    """
    is_f16 = options.cache_type_k == options.cache_type_v == "f16"
    return is_f16 and options.parallel > DEFAULT_SLOTS and n_slots == options.parallel
