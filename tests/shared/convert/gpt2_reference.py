"""GPT-2 in NumPy: forward pass, and the files of a Hugging Face folder.

It follows the definitions (Radford et al. 2019): pre-norm blocks, learned positions, tanh GELU. It shares
nothing with the converter.
"""

import json
import struct

import numpy as np

from tests.shared.convert.llama2c_reference import EPSILON, attention

ALPHABET = {
    byte: chr(byte if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE else 0)
    for byte in range(256)
}
ALPHABET |= {byte: chr(0x100 + i) for i, byte in enumerate(b for b in range(256) if ALPHABET[b] == "\0")}
"""GPT-2's bytes_to_unicode: printable bytes stand for themselves, the others for U+0100 and on, in order."""


def random_gpt2(seed, *, width, n_heads, n_layers, n_vocab, n_ctx=64, n_hidden=None):
    """Random weights by Hugging Face's names. Conv1D matrices are (in, out)."""
    rng = np.random.default_rng(seed)
    n_hidden = n_hidden or 4 * width

    def draw(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def small(n):
        return (0.1 * rng.standard_normal(n)).astype(np.float32)

    weights = {
        "wte.weight": (rng.standard_normal((n_vocab, width)) / np.sqrt(width)).astype(np.float32),
        "wpe.weight": (0.1 * rng.standard_normal((n_ctx, width))).astype(np.float32),
        "ln_f.weight": 1 + small(width),
        "ln_f.bias": small(width),
    }
    for layer in range(n_layers):
        for name, *shape in (
            ("ln_1", width),
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("ln_2", width),
            ("mlp.c_fc", width, n_hidden),
            ("mlp.c_proj", n_hidden, width),
        ):
            weights[f"h.{layer}.{name}.weight"] = draw(*shape) if len(shape) > 1 else 1 + small(*shape)
            weights[f"h.{layer}.{name}.bias"] = small(shape[-1])
    weights = {name: np.round(64 * array) / 64 for name, array in weights.items()}  # as BF16 can hold them
    config = {
        "model_type": "gpt2",
        "n_embd": width,
        "n_head": n_heads,
        "n_layer": n_layers,
        "n_positions": n_ctx,
        "n_ctx": n_ctx,
        "vocab_size": n_vocab,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": EPSILON,
    }
    if n_hidden != 4 * width:
        config["n_inner"] = n_hidden
    return config, weights


def logits(config, weights, tokens):
    """The logits, (n_tokens, n_vocab), in float64."""
    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    n, n_heads = len(tokens), config["n_head"]
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][:n]
    for layer in range(config["n_layer"]):
        at = f"h.{layer}."
        h = linear(norm(x, weights, f"{at}ln_1"), weights, f"{at}attn.c_attn")
        attended = attention(*(part.reshape(n, n_heads, -1) for part in np.split(h, 3, axis=1)))
        x = x + linear(attended, weights, f"{at}attn.c_proj")
        h = linear(norm(x, weights, f"{at}ln_2"), weights, f"{at}mlp.c_fc")
        gelu = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + linear(gelu, weights, f"{at}mlp.c_proj")
    return norm(x, weights, "ln_f") @ weights.get("lm_head.weight", weights["wte.weight"]).T


def linear(x, weights, name):
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def norm(x, weights, name):
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


# files


def safetensors(tensors, kind="F32", **metadata):
    """The bytes of a file with these arrays by name."""
    header, data = {"__metadata__": {"format": "pt", **metadata}}, b""
    for name, array in tensors.items():
        encoded = encoded_as(kind, array)
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(encoded)],
        }
        data += encoded
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def encoded_as(kind, array):
    match kind:
        case "F32":
            return array.astype("<f4").tobytes()
        case "F16":
            return array.astype("<f2").tobytes()
    return (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def write_folder(folder, config, weights, kind="F32", *, prefix="", n_shards=1):
    folder.mkdir(exist_ok=True)
    tensors = {prefix + name: array for name, array in weights.items()}
    if n_shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(tensors, kind))
    else:
        index = {}
        for shard in range(n_shards):
            name = f"model-{shard + 1:05d}-of-{n_shards:05d}.safetensors"
            part = dict(list(tensors.items())[shard::n_shards])
            (folder / name).write_bytes(safetensors(part, kind))
            index |= dict.fromkeys(part, name)
        text = json.dumps({"metadata": {"total_size": 1}, "weight_map": index})
        (folder / "model.safetensors.index.json").write_text(text)
    (folder / "config.json").write_text(json.dumps(config))
    tokens, merges = vocabulary()
    (folder / "vocab.json").write_text(json.dumps(tokens))
    (folder / "merges.txt").write_text(
        "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges) + "\n"
    )
    return folder


# the tokenizer


def vocabulary():
    """(ids by token, merges) as in GPT-2: bytes, some merges, and the end token last."""
    space = ALPHABET[ord(" ")]
    merges = [(space, "t"), ("h", "e"), (space, "a"), ("i", "n"), ("r", "e"), ("o", "n"), (space + "t", "he")]
    merges += [("e", "r"), (space, "s"), ("a", "t"), ("n", "d"), (space + "a", "nd"), ("o", "r"), ("e", "n")]
    merges += [("O", "n"), ("c", "e"), ("On", "ce"), (space, "u"), ("p", "on"), (space + "u", "pon")]
    merges += [(space + "t", "i"), ("m", "e"), (space + "ti", "me"), ("'", "s"), ("Ã", "©"), ("l", "l")]
    tokens = [*sorted(ALPHABET.values()), *map("".join, merges), "<|endoftext|>"]
    return {token: i for i, token in enumerate(tokens)}, merges
