"""llama2.c in NumPy: its forward pass, and its files in all versions.

It follows run.c's definitions: RMSNorm, rotary positions in pairs of neighbors, grouped-query attention,
SwiGLU.
The files follow the description of their formats. It shares nothing with the converter.
"""

import struct
from dataclasses import dataclass, replace

import numpy as np

EPSILON = 1e-5
NORMS = ("attention_norm", "ffn_norm", "norm")
MATRICES = ("wq", "wk", "wv", "wo", "w1", "w2", "w3")


@dataclass
class Llama:
    """Weights by llama2.c's names. Matrices are (out, in), with a leading axis for layers."""

    n_heads: int
    n_kv_heads: int
    n_ctx: int
    weights: dict[str, np.ndarray]

    def logits(self, tokens):
        """The logits, (n_tokens, n_vocab), in float64."""
        weights = {name: array.astype(np.float64) for name, array in self.weights.items()}
        x = weights["tok_embeddings"][tokens]
        n, width = x.shape
        head = width // self.n_heads
        for layer in range(len(weights["wq"])):
            at = {name: weights[name][layer] for name in (*NORMS[:2], *MATRICES)}
            h = rms_norm(x, at["attention_norm"])
            q = rotate((h @ at["wq"].T).reshape(n, self.n_heads, head))
            k = rotate((h @ at["wk"].T).reshape(n, self.n_kv_heads, head))
            v = (h @ at["wv"].T).reshape(n, self.n_kv_heads, head)
            x = x + attention(q, k, v) @ at["wo"].T
            h = rms_norm(x, at["ffn_norm"])
            gate = h @ at["w1"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ at["w3"].T)) @ at["w2"].T
        return rms_norm(x, weights["norm"]) @ weights.get("output", weights["tok_embeddings"]).T


def random_llama(seed, *, width, n_hidden, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx=64, shared=True):
    rng = np.random.default_rng(seed)
    n_keys = width // n_heads * n_kv_heads
    norms = {"attention_norm": (n_layers, width), "ffn_norm": (n_layers, width), "norm": (width,)}
    matrices = {"tok_embeddings": (n_vocab, width)} | {
        name: (n_layers, *shape)
        for name, *shape in (
            ("wq", width, width),
            ("wk", n_keys, width),
            ("wv", n_keys, width),
            ("wo", width, width),
            ("w1", n_hidden, width),
            ("w2", width, n_hidden),
            ("w3", n_hidden, width),
        )
    }
    if not shared:
        matrices["output"] = (n_vocab, width)
    weights = {name: 1 + 0.1 * rng.standard_normal(shape) for name, shape in norms.items()}
    weights |= {name: rng.standard_normal(shape) / shape[-1] ** 0.5 for name, shape in matrices.items()}
    return Llama(
        n_heads, n_kv_heads, n_ctx, {name: array.astype(np.float32) for name, array in weights.items()}
    )


def attention(q, k, v):
    """Causal attention of (n_tokens, heads, head width) each. k and v may have fewer heads than q.

    Returns (n_tokens, width).
    """
    n, n_heads, head = q.shape
    k, v = (np.repeat(each, n_heads // each.shape[1], axis=1) for each in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(head) + np.triu(np.full((n, n), -np.inf), 1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", weights / weights.sum(axis=-1, keepdims=True), v).reshape(n, -1)


def rms_norm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight


def rotate(x):
    """Turn values 2i and 2i + 1 by position / 10000^(2i / head_width). x: (n_tokens, heads, head_width)."""
    n, _, head = x.shape
    angles = np.arange(n)[:, None] / 10000.0 ** (np.arange(0, head, 2) / head)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., ::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., ::2], turned[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
    return turned


def greedy(model, tokens, n):
    tokens = list(tokens)
    for _ in range(n):
        tokens.append(int(np.argmax(model.logits(tokens)[-1])))
    return tokens


# files


def shape(model, *, signed):
    n_vocab, width = model.weights["tok_embeddings"].shape
    if signed and "output" in model.weights:
        n_vocab = -n_vocab
    n_layers, n_hidden, _ = model.weights["w1"].shape
    return struct.pack(
        "<7i", width, n_hidden, n_layers, model.n_heads, model.n_kv_heads, n_vocab, model.n_ctx
    )


def floats(*arrays):
    return b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)


def floats_of(model, *names):
    """The weights of these names that the model has."""
    return floats(*(model.weights[name] for name in names if name in model.weights))


def version_0(model):
    head = model.weights["tok_embeddings"].shape[1] // model.n_heads
    return (
        shape(model, signed=True)
        + floats_of(model, "tok_embeddings", "attention_norm", "wq", "wk", "wv", "wo", "ffn_norm")
        + floats_of(model, "w1", "w2", "w3", "norm")
        + floats(np.full(model.n_ctx * head, 7.0))  # tables that are not read
        + floats_of(model, "output")
    )


def header(model, version, *flags):
    text = b"24ka" + struct.pack("<i", version) + shape(model, signed=False)
    return (text + struct.pack("<B", "output" not in model.weights) + b"".join(flags)).ljust(256, b"\0")


def version_1(model):
    return header(model, 1) + floats_of(model, *NORMS, "tok_embeddings", *MATRICES, "output")


def version_2(model, group_size):
    """The file, and the model that it contains after rounding."""
    held = dict(model.weights)
    body = floats_of(model, *NORMS)
    for name in ("tok_embeddings", *MATRICES, *held.keys() & {"output"}):
        weights = model.weights[name]
        held[name] = np.empty_like(weights)
        for place in np.ndindex(weights.shape[: weights.ndim - 2]):
            integers, scales = quantize(weights[place], group_size)
            body += integers.tobytes() + floats(scales)
            held[name][place] = (integers * scales[:, None]).reshape(weights[place].shape)
    return header(model, 2, struct.pack("<i", group_size)) + body, replace(model, weights=held)


def quantize(weights, group_size):
    groups = weights.reshape(-1, group_size)
    scales = (np.abs(groups).max(axis=1) / 127).astype(np.float32)
    return np.round(groups / scales[:, None]).astype(np.int8), scales


# the tokenizer


def words():
    """Pieces in Llama 2's order: special pieces, bytes, merged pieces (best first), characters."""
    characters = " abcdefghijklmnopqrstuvwxyzTOLé,.'\n"
    merged = " t|he| the|on|ce| a|in|nd| and|er|On| On|Once| Once|up| up| upon|pon|me|ti| ti| time|ll|ell"
    merged = f"{merged}|ello|th|ed| w| s".split("|")
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    characters = [each for each in characters if each != "\n"]  # a byte token
    scores = [0.0] * len(pieces)
    scores += [-float(i) for i in range(len(merged))] + [-1000.0 - i for i in range(len(characters))]
    return [*pieces, *merged, *characters], scores


def tokenizer_bin(pieces, scores):
    encoded = [piece.encode() for piece in pieces]
    data = struct.pack("<I", max(map(len, encoded)))
    for piece, score in zip(encoded, scores, strict=True):
        data += struct.pack("<fI", score, len(piece)) + piece
    return data
