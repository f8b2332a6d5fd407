"""A tiny random EAGLE-3 drafter, in the shape of llama.cpp's converter."""

import gguf
import numpy as np

from shared.model_files.builtin import builtin_target
from tests.tiny_models import copy_fields, write_and_close


def write_tiny_eagle(path, *, layers=(1, 2, 3), width=64, target_width=64, own=False, n_known=None, seed=1):
    """Write a drafter. own: with embeddings and output matrix. n_known: it drafts only the first tokens."""
    writer = gguf.GGUFWriter(path, "eagle3")
    vocabulary = gguf.GGUFReader(builtin_target())
    copy_fields(vocabulary, writer, lambda name: name.startswith("tokenizer."))
    n_vocab = len(vocabulary.fields["tokenizer.ggml.tokens"].data)
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // 2)
    writer.add_array("eagle3.target_layers", list(layers))
    writer.add_uint32("eagle3.target_hidden_size", target_width)
    rng = np.random.default_rng(seed)
    for name, shape in _shapes(width, target_width, n_vocab, own=own, n_known=n_known).items():
        values = np.ones(shape) if "norm" in name else 0.3 * rng.standard_normal(shape)
        writer.add_tensor(name, values.astype(np.float32))
    if n_known:
        writer.add_tensor("d2t", np.sort(rng.choice(n_vocab, n_known, replace=False)).astype(np.int64))
    write_and_close(writer)
    return path


def _shapes(width, target_width, n_vocab, *, own, n_known):
    shapes = {
        "fc.weight": (width, 3 * target_width),
        "output_norm.weight": (width,),
        **{f"blk.0.{name}.weight": (width,) for name in ("attn_norm", "attn_norm_2", "ffn_norm")},
        **{f"blk.0.attn_{name}.weight": (width, 2 * width) for name in "qkv"},
        "blk.0.attn_output.weight": (width, width),
        "blk.0.ffn_gate.weight": (2 * width, width),
        "blk.0.ffn_up.weight": (2 * width, width),
        "blk.0.ffn_down.weight": (width, 2 * width),
    }
    if own:
        shapes["token_embd.weight"] = (n_vocab, width)
    if own or n_known:
        shapes["output.weight"] = (n_known or n_vocab, width)
    return shapes
