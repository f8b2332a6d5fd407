"""Keys under which a start caches data for later starts. `DECIDES` has a row for each input.

A key is a digest of the inputs that determine the data: options, files, llama.cpp's build, the CPU and other
devices. The process that loads the files describes them before loading (`state_of_files`).
"""

import enum
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from shared import cpus
from shared.errors import ModelLoadError
from shared.llama import devices, library
from shared.model_files.file_kind import parts_of
from shared.settings.model_options import ModelOptions


class LoadedFacts(NamedTuple):
    """Properties of a loaded model that are part of keys.

    files: as described by `state_of_files`. n_ctx_of_rope: with LongRoPE, the context length that determines
    the rotation of keys; 0: without LongRoPE. uses_flash_attention: without it, values are stored in another
    order.
    """

    files: str
    n_ctx_of_rope: int
    uses_flash_attention: bool


class StoredKind(enum.Flag):
    """Kinds of cached data, each with its own keys."""

    NOTHING = 0
    TEXTS = enum.auto()
    """Texts on disk and in slot files."""
    EXACTNESS = enum.auto()
    STEP_TIMES = enum.auto()
    MEMORY = enum.auto()
    """The memory of contexts (`shared.memory.stored_outline`)."""
    ATTENTION = enum.auto()
    """The measurement that shows whether flash attention is faster (the ring `lead.attention`)."""


_MEASURED: Final = StoredKind.EXACTNESS | StoredKind.STEP_TIMES | StoredKind.MEMORY
_ALL_BUT_ATTENTION: Final = _MEASURED | StoredKind.TEXTS
_ALL: Final = _ALL_BUT_ATTENTION | StoredKind.ATTENTION

DECIDES: Final[Mapping[str, StoredKind]] = MappingProxyType(
    {
        # Options of the model. Options that move layers or divide batches change how results are rounded.
        **dict.fromkeys(("parallel", "threads", "cache_type_k", "cache_type_v", "kv_unified"), _ALL),
        **dict.fromkeys(("swa_full", "batch_size", "ubatch_size"), _ALL_BUT_ATTENTION),
        **dict.fromkeys(("threads_batch", "repack", "lora", "exact"), _ALL_BUT_ATTENTION),
        **dict.fromkeys(("n_gpu_layers", "kv_offload", "device", "split_mode"), _ALL_BUT_ATTENTION),
        **dict.fromkeys(("main_gpu", "tensor_split", "override_tensor"), _ALL_BUT_ATTENTION),
        **dict.fromkeys(("cpu_moe", "n_cpu_moe"), _ALL_BUT_ATTENTION),
        "ctx_size": _MEASURED,  # texts depend on `n_ctx_of_rope` instead
        "flash_attn": _MEASURED,  # texts depend on `uses_flash_attention` instead
        "load_mode": StoredKind.EXACTNESS | StoredKind.STEP_TIMES,
        "fit": StoredKind.EXACTNESS,  # other kinds depend on the chosen layers
        "fit_target": StoredKind.EXACTNESS,
        "cache_ram": StoredKind.NOTHING,  # does not affect the data
        "ctx_checkpoints": StoredKind.NOTHING,
        "checkpoint_memory": StoredKind.NOTHING,
        # Other inputs of a start.
        "version": _ALL,  # of the code that measures or writes
        "with_heads": _MEASURED,  # draft heads have a cache of their own
        "rpc": StoredKind.EXACTNESS | StoredKind.STEP_TIMES,  # with RPC workers, texts are not stored
        "max_threads": StoredKind.STEP_TIMES,
        "cores": StoredKind.STEP_TIMES | StoredKind.ATTENTION,
        "batch_sizes": StoredKind.TEXTS | StoredKind.STEP_TIMES,
        "traits": StoredKind.TEXTS,
        "own_cells": StoredKind.TEXTS,
        "n_part": StoredKind.TEXTS,
        "n_ctx_of_rope": StoredKind.TEXTS,
        "uses_flash_attention": StoredKind.TEXTS,
    }
)
"""For each input, the stored kinds whose key changes with it. A test fails for an option without a row."""


def start_key(kept: StoredKind, files: str, options: ModelOptions, **facts: Any) -> str:
    """Return the key under which data of the kind `kept` is cached for equal `files`, options and facts.

    facts: the fields of `LoadedFacts`, and other inputs of `DECIDES`.
    """
    decisive = {name for name, kinds in DECIDES.items() if kept in kinds}
    assert facts.keys() == decisive - ModelOptions.model_fields.keys(), f"other facts decide {kept}"
    chosen = options.model_dump_json(include=decisive)
    told = [f"{name} {facts[name]}" for name in sorted(facts)]
    digest = hashlib.sha256()
    for fact in (kept, files, chosen, *told, library.build(), cpus.kind(), *_environment()):
        digest.update(f"{fact}\0".encode())
    for device in devices.descriptions():
        digest.update(f"{device}\0".encode())
    return digest.hexdigest()[:24]


def state_of_files(model: Path, options: ModelOptions) -> str:
    """Return the files of a model and its adapters, with sizes and modification times; raises
    ModelLoadError.
    """
    paths = [*parts_of(model), *(adapter.path for adapter in options.lora)]
    try:
        states = [(path.absolute(), path.stat()) for path in paths]
    except OSError as error:
        raise ModelLoadError(f"{error.filename} cannot be read: {error.strerror}") from None
    return "\n".join(f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in states)


def changed_meanwhile(model: Path) -> ModelLoadError:
    """Return the error for a model whose files changed while they were loaded."""
    return ModelLoadError(f"{model} or an adapter changed while it was loaded. Try again")


def _environment() -> list[str]:
    """Return the environment variables that llama.cpp reads itself, such as LLAMA_ATTN_ROT_DISABLE."""
    return sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name.startswith(("GGML_", "LLAMA_")) and not name.startswith("LLAMA_ARG_")
    )
