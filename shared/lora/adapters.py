"""LoRA adapters (`--lora`): checks their files, loads them, and applies them to a model."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared.errors import ModelLoadError
from shared.llama import library
from shared.llama.native import llama_cpp
from shared.model_files.file_kind import read_beginning
from shared.settings.model_options import LoraAdapter

_FAILED = "failed to apply lora adapter: "


def check_adapters(adapters: Sequence[LoraAdapter], model: Path) -> None:
    """Raise ModelLoadError if a file is not a LoRA adapter, or is an adapter for another kind of model."""
    architecture = read_beginning(model).get("general.architecture", "")
    for each in adapters:
        values = read_beginning(each.path)
        if (values.get("general.type"), values.get("adapter.type")) != ("adapter", "lora"):
            raise ModelLoadError(f"{each.path} is not a LoRA adapter in GGUF format (--lora)")
        if (found := values.get("general.architecture")) != architecture:
            raise ModelLoadError(
                f"{each.path} is an adapter for {found} models; the architecture of {model} is {architecture}"
            )


def load_adapters(model: Any, adapters: Sequence[LoraAdapter]) -> list[Any]:
    """Load adapters into a llama_model, which owns them, before it has contexts; raises ModelLoadError."""
    loaded = []
    for each in adapters:
        with library.captured_log() as lines:
            adapter = llama_cpp.llama_adapter_lora_init(model, str(each.path).encode())
        if not adapter:
            reasons = [line.partition(_FAILED)[2].strip() for line in lines if _FAILED in line]
            reason = reasons[0] if reasons else "llama.cpp cannot read it"
            raise ModelLoadError(f"{each.path} cannot be applied to this model: {reason}")
        if llama_cpp.llama_adapter_get_alora_n_invocation_tokens(adapter):
            raise ModelLoadError(f"{each.path} is an activated LoRA (aLoRA), which is not supported")
        loaded.append(adapter)
    return loaded


def apply_adapters(context: Any, loaded: Sequence[Any], adapters: Sequence[LoraAdapter]) -> None:
    """Apply adapters to everything that a llama_context computes from now on."""
    if not loaded:
        return
    pointers = (llama_cpp.llama_adapter_lora_p_ctypes * len(loaded))(
        *[ctypes.cast(each, llama_cpp.llama_adapter_lora_p_ctypes) for each in loaded]
    )
    scales = (ctypes.c_float * len(loaded))(*[each.scale for each in adapters])
    code = llama_cpp.llama_set_adapters_lora(context, pointers, len(loaded), scales)
    assert code == 0, "llama.cpp cannot apply an adapter that it has loaded"
