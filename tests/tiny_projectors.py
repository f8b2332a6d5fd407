"""Tiny random projectors (mmproj) for the models of `tests.tiny_models`: they show how images are handled."""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

from tests.tiny_models import write_and_close

_WIDTH, _HEADS, _FEED_FORWARD, _PATCH = 32, 2, 64, 14
_GRID = {"gemma3": 16, "qwen2vl": 4}
"""Patches of the side of an image: for Qwen 2-VL only where it is not scaled."""
_KINDS = {"gemma3": "gemma3", "qwen2vl": "qwen2vl_merger"}
_MERGED = 4
"""Patches of an image that are one row of Qwen 2-VL's."""


def write_tiny_projector(architecture: str, path: Path, n_embd: int = 64, seed: int = 1) -> Path:
    """For a model of this architecture whose rows have `n_embd` numbers. Gemma 3's images have 16 rows."""
    side = _GRID[architecture] * _PATCH
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", _KINDS[architecture])
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    numbers = {
        "embedding_length": _WIDTH,
        "feed_forward_length": _FEED_FORWARD,
        "block_count": 1,
        "projection_dim": n_embd,
        "image_size": side,
        "patch_size": _PATCH,
        "attention.head_count": _HEADS,
    }
    for name, value in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])
    rng = np.random.default_rng(seed)
    for name, shape, sd in _tensors(architecture, n_embd):
        values = np.ones(shape) if sd == 0 else rng.standard_normal(shape) * sd
        writer.add_tensor(name, values.astype(np.float32))
    write_and_close(writer)
    return path


def _tensors(architecture: str, n_embd: int) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and standard deviation of each; 0: ones."""
    yield "v.patch_embd.weight", (_WIDTH, 3, _PATCH, _PATCH), 0.05
    if architecture == "gemma3":
        yield "v.patch_embd.bias", (_WIDTH,), 0.3
        yield "v.position_embd.weight", (_GRID[architecture] ** 2, _WIDTH), 0.3
        yield "mm.input_projection.weight", (_WIDTH, n_embd), 0.2
        yield "mm.soft_emb_norm.weight", (_WIDTH,), 0
    else:
        yield "v.patch_embd.weight.1", (_WIDTH, 3, _PATCH, _PATCH), 0.05
        yield "mm.0.weight", (_MERGED * _WIDTH, _MERGED * _WIDTH), 0.3
        yield "mm.0.bias", (_MERGED * _WIDTH,), 0.3
        yield "mm.2.weight", (n_embd, _MERGED * _WIDTH), 0.3
        yield "mm.2.bias", (n_embd,), 0.3
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        yield f"v.blk.0.{name}.weight", (_WIDTH, _WIDTH), 0.3
        yield f"v.blk.0.{name}.bias", (_WIDTH,), 0.3
    for name in ("blk.0.ln1", "blk.0.ln2", "post_ln"):
        yield f"v.{name}.weight", (_WIDTH,), 0
        yield f"v.{name}.bias", (_WIDTH,), 0.3
    yield "v.blk.0.ffn_up.weight", (_FEED_FORWARD, _WIDTH), 0.3
    yield "v.blk.0.ffn_up.bias", (_FEED_FORWARD,), 0.3
    yield "v.blk.0.ffn_down.weight", (_WIDTH, _FEED_FORWARD), 0.3
    yield "v.blk.0.ffn_down.bias", (_WIDTH,), 0.3
