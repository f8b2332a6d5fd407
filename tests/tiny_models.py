"""Tiny random models of nearly any architecture that llama.cpp knows, written in under a second.

Random weights say nothing about acceptance. They show whether caches, states and batches are handled right,
for each kind of memory. Two models with the same seed are equal. With different seeds their outputs have
nothing in common.

`llama_model_init_from_user` creates the tensors that an architecture needs from its metadata, a callback
fills them, `llama_model_save_to_file` writes the file. The metadata follow llama.cpp's own
tests/test-llama-archs.cpp. Keys that an architecture does not read are ignored, so one set serves most.
"""

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np

from shared.llama import library
from shared.model_files.builtin import builtin_target

N_CTX = 512
WINDOW = 32
"""The tokens in a sliding window, for architectures whose window is not a constant in llama.cpp."""

WRITTEN = ("GGUF.", "general.architecture")
"""Beginnings of the keys that a GGUFWriter writes by itself."""

Value = bool | int | float | str | list[int]

_MIXTURES = (
    *("moe", "gpt-oss", "next", "deepseek", "jamba", "mixtral", "llama4", "smallthinker", "mimo2"),
    *("laguna", "grok", "dbrx", "minimax", "glm-dsa", "dots1", "kimi", "mellum"),
)
"""Parts of the names of architectures that have experts."""

_LAYERWISE = (
    *("plamo2", "jamba", "nemotron_h", "nemotron_h_moe", "granitehybrid", "lfm2", "lfm2moe", "kimi-linear"),
)
"""Architectures in which layers without heads are recurrent."""

_LATENT = ("deepseek2", "deepseek32", "glm-dsa", "kimi-linear", "mistral4")
"""Architectures with multi-head latent attention."""

_FULL_ATTENTION_INTERVAL = 2

_WINDOW_LISTS = ("granite_swa", "mimo2", "spark2_5")
"""Architectures that list the layers with sliding windows one by one."""

_DELTA_NETS = ("qwen35", "qwen35moe", "qwen3next")

WITH_HEADS = ("qwen35", "qwen3next", "glm4moe")
"""Architectures that can have heads for further tokens: see `with_heads`."""


class ArchitectureError(Exception):
    """llama.cpp does not make a model of this architecture from this metadata."""


@dataclass(frozen=True, slots=True)
class TinyModel:
    """The model to write. `sd`: the weights' standard deviation. `settings` override the usual metadata."""

    architecture: str
    seed: int = 1
    width: int = 64
    n_layers: int = 4
    sd: float = 0.3
    settings: Mapping[str, Value] | None = None

    @property
    def has_heads(self) -> bool:
        """Return whether the last layers predict further tokens (MTP)."""
        return bool(self.settings and self.settings.get("nextn_predict_layers"))


def with_heads(architecture: str, seed: int = 1) -> TinyModel:
    """A model of `WITH_HEADS`, whose last layer predicts a further token (MTP)."""
    settings: dict[str, Value] = {"nextn_predict_layers": 1}
    if architecture not in _DELTA_NETS:
        settings["rope.dimension_sections"] = [0, 0, 0, 0]
    return TinyModel(architecture, seed, n_layers=5, settings=settings)


def write_tiny_model(model: TinyModel, path: Path, vocabulary: Path | None = None) -> Path:
    """Write `model` with the vocabulary of another GGUF (default: the shipped pair's) to `path`, in f32.

    Raises ArchitectureError. Some combinations abort the process: try a new one in a process of its own.
    """
    functions = _Functions()
    write_metadata(model, path, vocabulary)
    metadata = functions.gguf_init_from_file(os.fsencode(path), _Init(True, None))
    library.start()
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.load_mtp = model.has_heads
    fill = _filler(functions, model)
    with _quiet():
        native = functions.llama_model_init_from_user(
            metadata, ctypes.cast(fill, ctypes.c_void_p), None, parameters
        )
        if not native:
            raise ArchitectureError(f"llama.cpp does not make a {model.architecture} of this metadata")
        functions.llama_model_save_to_file(native, os.fsencode(path))
    llama_cpp.llama_model_free(native)
    functions.gguf_free(metadata)
    if model.has_heads:
        _mend_heads(path, model.architecture)
    return path


def write_metadata(model: TinyModel, path: Path, vocabulary: Path | None = None) -> Path:
    """Write a GGUF of any architecture without tensors: enough to load its vocabulary."""
    reader = gguf.GGUFReader(vocabulary) if vocabulary else _shipped()
    writer = gguf.GGUFWriter(path, model.architecture)
    writer.add_name(f"tiny {model.architecture}")
    copy_fields(reader, writer, lambda name: name.startswith("tokenizer."))
    n_vocab = len(reader.fields["tokenizer.ggml.tokens"].data)
    for key, value in (_metadata(model, n_vocab) | dict(model.settings or {})).items():
        _put(writer, f"{model.architecture}.{key}", value)
    write_and_close(writer)
    return path


def write_fim_vocabulary(path: Path, **tokens: int) -> Path:
    """Write the shipped pair's vocabulary with these `fim_*` tokens, for `write_tiny_model`."""
    writer = gguf.GGUFWriter(path, "llama")
    copy_fields(gguf.GGUFReader(builtin_target()), writer, lambda name: name.startswith("tokenizer."))
    for name, token in tokens.items():
        _put(writer, f"tokenizer.ggml.fim_{name}_token_id", token)
    write_and_close(writer)
    return path


def _put(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    """Add a field, in the GGUF type that llama.cpp expects."""
    kinds = gguf.GGUFValueType
    scalars = {bool: kinds.BOOL, int: kinds.UINT32, float: kinds.FLOAT32, str: kinds.STRING}
    if isinstance(value, list):
        writer.add_key_value(key, value, kinds.ARRAY, kinds.UINT32)
    else:
        writer.add_key_value(key, value, scalars[type(value)])


@functools.cache
def _shipped() -> gguf.GGUFReader:
    """The shipped target, read once: reading its vocabulary takes longer than writing a tiny model."""
    return gguf.GGUFReader(builtin_target())


def copy_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, is_wanted: Callable[[str], bool]) -> None:
    """Copy metadata except empty lists, which the library does not write."""
    for field in reader.fields.values():
        if is_wanted(field.name) and (value := field.contents()) != []:
            kind, *items = field.types
            writer.add_key_value(field.name, value, kind, items[-1] if items else None)


def write_and_close(writer: gguf.GGUFWriter) -> None:
    """Write everything that was added to a writer."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _mend_heads(path: Path, architecture: str) -> None:
    """Mend a file with heads, which llama.cpp cannot load without the heads.

    llama.cpp does not count the scales of the heads' tensors, and saves which of the other layers are
    recurrent.
    """
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path.with_suffix(".mended"), architecture)
    wrong = f"{architecture}.attention.recurrent_layers"
    copy_fields(reader, writer, lambda name: not name.startswith((*WRITTEN, wrong)))
    if wrong in reader.fields:
        writer.add_uint32(f"{architecture}.full_attention_interval", _FULL_ATTENTION_INTERVAL)
    for tensor in reader.tensors:
        if not tensor.name.endswith("scale"):
            writer.add_tensor(tensor.name, tensor.data)
    write_and_close(writer)
    path.with_suffix(".mended").replace(path)


def _metadata(model: TinyModel, n_vocab: int) -> dict[str, Value]:
    name, width, n_layers = model.architecture, model.width, model.n_layers
    n_heads = max(2, width // 64)
    values: dict[str, Value] = {
        "vocab_size": n_vocab,
        "context_length": N_CTX,
        "embedding_length": width,
        "block_count": n_layers,
        "feed_forward_length": width * 3 // 2,
        "attention.head_count": n_heads,
        "attention.head_count_kv": n_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": 2,
        "attention.scale": 0.1,
        "attention.clamp_kqv": 1.0,
        "attention.max_alibi_bias": 8.0,
        "attention.relative_buckets_count": 8,
        "full_attention_interval": _FULL_ATTENTION_INTERVAL,
        "rope.dimension_count": width // n_heads,
        "rope.dimension_sections": [width // n_heads // 4] * 4,
        "logit_scale": 1.0,
        "use_parallel_residual": False,
        "residual_scale": 1.0,
        "embedding_scale": 1.0,
    }
    if any(part in name for part in _MIXTURES):
        values |= _experts(width)
    values |= _recurrent_state(name, width)
    if name in _LAYERWISE:
        heads = [0 if layer % 2 else n_heads for layer in range(n_layers)]
        values |= {"attention.head_count": heads, "attention.head_count_kv": heads}
    if name.startswith("nemotron_h"):
        values["feed_forward_length"] = [0] * (n_layers - 1) + [width * 3 // 2]
    if name in _LATENT:
        values |= _latent_attention()
    if name in _WINDOW_LISTS:
        values["attention.sliding_window_pattern"] = [1 - layer % 2 for layer in range(n_layers)]
    return values


def _recurrent_state(name: str, width: int) -> dict[str, Value]:
    size = 128 if width >= 1024 else 32
    values: dict[str, Value] = {
        "ssm.inner_size": 2 * width,
        "ssm.conv_kernel": 4,
        "ssm.state_size": size,
        "ssm.time_step_rank": 2 * width // 32,
        "ssm.group_count": 2,
        "shortconv.l_cache": 3,
        "wkv.head_size": 32,
        "time_mix_extra_dim": 32,
        "time_decay_extra_dim": 32,
        "rescale_every_n_layers": 0,
        "token_shift_count": 1 if name == "arwkv7" else 2,
        **{f"attention.{rank}_lora_rank": 32 for rank in ("decay", "iclr", "value_residual_mix", "gate")},
        "kda.head_dim": 32,
    }
    if name in _DELTA_NETS:
        n_heads = width // size
        values |= {"ssm.inner_size": width, "ssm.time_step_rank": n_heads, "ssm.group_count": n_heads}
    if name == "plamo2":
        values["ssm.group_count"] = 0
    return values


def _experts(width: int) -> dict[str, Value]:
    return {
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_feed_forward_length": width,
        "expert_shared_feed_forward_length": width,
        "expert_shared_count": 1,
        "expert_gating_func": 2,
        "expert_weights_scale": 1.0,
        "interleave_moe_layer_step": 2,
        "leading_dense_block_count": 1,
    }


def _latent_attention() -> dict[str, Value]:
    return {
        "attention.head_count": 1,
        "attention.head_count_kv": 1,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "attention.q_lora_rank": 64,
        "attention.kv_lora_rank": 512,
        "rope.dimension_count": 64,
    }


class _Init(ctypes.Structure):
    """`gguf_init_params` of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


_POINTER, _TEXT, _NOTHING = ctypes.c_void_p, ctypes.c_char_p, None

_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    "gguf_init_from_file": ([_TEXT, _Init], _POINTER),
    "gguf_free": ([_POINTER], _NOTHING),
    "ggml_get_name": ([_POINTER], _TEXT),
    "ggml_nelements": ([_POINTER], ctypes.c_int64),
    "ggml_nbytes": ([_POINTER], ctypes.c_size_t),
    "ggml_backend_tensor_set": ([_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_size_t], _NOTHING),
    "llama_model_init_from_user": (
        [_POINTER, _POINTER, _POINTER, llama_cpp.llama_cpp.llama_model_params],
        _POINTER,
    ),
    "llama_model_save_to_file": ([_POINTER, _TEXT], _NOTHING),
}
"""Functions that the library exports and llama_cpp does not bind: argument types and result of each."""


class _Functions:
    """The functions of `_SIGNATURES` as attributes."""

    def __init__(self) -> None:
        library = llama_cpp.llama_cpp._lib
        for name, (arguments, result) in _SIGNATURES.items():
            function = library[name]  # a new object: llama_cpp's own is not changed
            function.argtypes, function.restype = arguments, result
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _filler(functions: _Functions, model: TinyModel) -> Any:
    """The callback that fills a tensor, from its name and the seed alone."""

    def fill(tensor: int, _: int) -> None:
        name, n = functions.ggml_get_name(tensor).decode(), functions.ggml_nelements(tensor)
        rng = np.random.default_rng([model.seed, *name.encode()])
        values = (rng.standard_normal(n) * model.sd).astype(np.float32)
        if "norm" in name and name.endswith("weight"):
            values = np.ones(n, np.float32)
        if "ssm_a" in name:  # the decay of a state
            values = -np.abs(values)
        assert functions.ggml_nbytes(tensor) == values.nbytes, f"{name} is not f32"
        functions.ggml_backend_tensor_set(tensor, values.ctypes.data, 0, values.nbytes)

    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(fill)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide llama.cpp's log, which bypasses sys.stderr."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
