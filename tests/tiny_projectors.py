"""Tiny random projectors (mmproj), and models for them: they show how images are handled."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from shared.model_files.builtin import builtin_target
from tests.tiny_models import copy_fields, write_and_close

_WIDTH, _HEADS, _FEED_FORWARD, _PATCH = 32, 2, 64, 14
_MERGED = 4
"""Patches of an image in one row: 2 x 2, unless each row is one patch."""
_IDEFICS3_TOKENS = ("\n\n", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>")
_USER_DEFINED = 4


@dataclass(frozen=True, slots=True)
class _Kind:
    """architecture: the model's. name: llama.cpp's. n_patches: of a side of an image that is not scaled."""

    architecture: str
    name: str
    n_patches: int
    n_blocks: int = 1


_KINDS = {
    "gemma3": _Kind("gemma3", "gemma3", 16),
    "qwen2vl": _Kind("qwen2vl", "qwen2vl_merger", 4),
    "qwen2.5vl": _Kind("qwen2vl", "qwen2.5vl_merger", 4, n_blocks=2),
    "idefics3": _Kind("llama", "idefics3", 4),
    "pixtral": _Kind("llama", "pixtral", 16),
    "mistral3": _Kind("mistral3", "pixtral", 16),
}
KINDS = tuple(_KINDS)


def architecture_of(kind: str) -> str:
    """The architecture of models with such projectors."""
    return _KINDS[kind].architecture


def write_tiny_projector(kind: str, path: Path, n_embd: int = 64, seed: int = 1) -> Path:
    """Write a projector for a model whose rows have `n_embd` numbers. Gemma 3's images have 16 rows."""
    found = _KINDS[kind]
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", found.name)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    numbers = {
        "embedding_length": _WIDTH,
        "feed_forward_length": _FEED_FORWARD,
        "block_count": found.n_blocks,
        "projection_dim": n_embd,
        "image_size": found.n_patches * _PATCH,
        "patch_size": _PATCH,
        "attention.head_count": _HEADS,
        **_numbers_of(kind),
    }
    for name, value in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])
    rng = np.random.default_rng(seed)
    for name, shape, sd in _tensors(kind, n_embd):
        values = np.ones(shape) if sd == 0 else rng.standard_normal(shape) * sd
        writer.add_tensor(name, values.astype(np.float32))
    write_and_close(writer)
    return path


def write_image_vocabulary(path: Path) -> Path:
    """Write the shipped pair's vocabulary with Idefics 3's tokens around an image."""
    writer = gguf.GGUFWriter(path, "llama")
    reader = gguf.GGUFReader(builtin_target())
    changed = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
    copy_fields(reader, writer, lambda name: name.startswith("tokenizer.") and name not in changed)
    tokens, types = (reader.fields[name].contents() for name in changed)
    tokens[-len(_IDEFICS3_TOKENS) :] = _IDEFICS3_TOKENS
    types[-len(_IDEFICS3_TOKENS) :] = [_USER_DEFINED] * len(_IDEFICS3_TOKENS)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    write_and_close(writer)
    return path


def _numbers_of(kind: str) -> dict[str, Any]:
    if kind == "qwen2.5vl":
        return {"n_wa_pattern": 2}
    if kind == "idefics3":
        return {"projector.scale_factor": 2, "preproc_image_size": 3 * _KINDS[kind].n_patches * _PATCH}
    return {"spatial_merge_size": 2} if kind == "mistral3" else {}


def _tensors(kind: str, n_embd: int) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """The name, shape and standard deviation of each tensor. At 0 all its values are one."""
    yield "v.patch_embd.weight", (_WIDTH, 3, _PATCH, _PATCH), 0.05
    yield from _ends(kind, n_embd)
    for block in range(_KINDS[kind].n_blocks):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            yield f"v.blk.{block}.{name}.weight", (_WIDTH, _WIDTH), 0.3
            yield f"v.blk.{block}.{name}.bias", (_WIDTH,), 0.3
        for name in ("ln1", "ln2"):
            yield f"v.blk.{block}.{name}.weight", (_WIDTH,), 0
            yield f"v.blk.{block}.{name}.bias", (_WIDTH,), 0.3
        yield f"v.blk.{block}.ffn_up.weight", (_FEED_FORWARD, _WIDTH), 0.3
        yield f"v.blk.{block}.ffn_up.bias", (_FEED_FORWARD,), 0.3
        yield f"v.blk.{block}.ffn_down.weight", (_WIDTH, _FEED_FORWARD), 0.3
        yield f"v.blk.{block}.ffn_down.bias", (_WIDTH,), 0.3


def _ends(kind: str, n_embd: int) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """The tensors around the blocks."""
    has_places = kind in {"gemma3", "idefics3"}
    if has_places:
        yield "v.patch_embd.bias", (_WIDTH,), 0.3
        yield "v.position_embd.weight", (_KINDS[kind].n_patches ** 2, _WIDTH), 0.3
    if has_places or kind.startswith("qwen"):
        yield "v.post_ln.weight", (_WIDTH,), 0
        yield "v.post_ln.bias", (_WIDTH,), 0.3
    if kind == "gemma3":
        yield "mm.input_projection.weight", (_WIDTH, n_embd), 0.2
        yield "mm.soft_emb_norm.weight", (_WIDTH,), 0
    elif kind == "idefics3":
        yield "mm.model.fc.weight", (n_embd, _MERGED * _WIDTH), 0.2
    elif kind.startswith("qwen"):
        yield "v.patch_embd.weight.1", (_WIDTH, 3, _PATCH, _PATCH), 0.05
        yield "mm.0.weight", (_MERGED * _WIDTH, _MERGED * _WIDTH), 0.3
        yield "mm.0.bias", (_MERGED * _WIDTH,), 0.3
        yield "mm.2.weight", (n_embd, _MERGED * _WIDTH), 0.3
        yield "mm.2.bias", (n_embd,), 0.3
    else:
        if kind == "mistral3":
            yield "mm.input_norm.weight", (_WIDTH,), 0
            yield "mm.patch_merger.weight", (_WIDTH, _MERGED * _WIDTH), 0.3
        yield "v.pre_ln.weight", (_WIDTH,), 0
        yield "mm.1.weight", (n_embd, _WIDTH), 0.3
        yield "mm.2.weight", (n_embd, n_embd), 0.3
        yield "v.token_embd.img_break", (n_embd,), 0.3
