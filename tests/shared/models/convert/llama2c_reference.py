"""llama2.c in NumPy: its tokenizer, its forward pass, and its files in all versions.

Written from run.c's definitions (RMSNorm, rotary positions in pairs of neighbours, grouped-query attention,
SwiGLU) and from the description of its file formats; shares nothing with the converter.
"""

import struct
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

EPSILON = 1e-5


@dataclass
class Llama:
    """Weights by llama2.c's names; matrices are (out, in), with a leading axis for layers."""

    n_heads: int
    n_kv_heads: int
    n_ctx: int
    tok_embeddings: np.ndarray
    attention_norm: np.ndarray
    ffn_norm: np.ndarray
    norm: np.ndarray
    wq: np.ndarray
    wk: np.ndarray
    wv: np.ndarray
    wo: np.ndarray
    w1: np.ndarray
    w2: np.ndarray
    w3: np.ndarray
    output: np.ndarray | None = None

    @property
    def matrices(self):
        return ("wq", "wk", "wv", "wo", "w1", "w2", "w3")

    def logits(self, tokens):
        """(n_tokens, n_vocab), in float64."""
        x = self.tok_embeddings[tokens].astype(np.float64)
        n, width = x.shape
        head = width // self.n_heads
        group = self.n_heads // self.n_kv_heads
        mask = np.triu(np.full((n, n), -np.inf), 1)
        for layer in range(len(self.wq)):
            h = rms_norm(x, self.attention_norm[layer])
            q = rotate((h @ self.wq[layer].T).reshape(n, self.n_heads, head))
            k = rotate((h @ self.wk[layer].T).reshape(n, self.n_kv_heads, head))
            v = (h @ self.wv[layer].T).reshape(n, self.n_kv_heads, head)
            attended = np.empty((n, self.n_heads, head))
            for i in range(self.n_heads):
                scores = q[:, i] @ k[:, i // group].T / np.sqrt(head) + mask
                attended[:, i] = softmax(scores) @ v[:, i // group]
            x = x + attended.reshape(n, width) @ self.wo[layer].T
            h = rms_norm(x, self.ffn_norm[layer])
            gate = h @ self.w1[layer].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ self.w3[layer].T)) @ self.w2[layer].T
        classifier = self.tok_embeddings if self.output is None else self.output
        return rms_norm(x, self.norm) @ classifier.T.astype(np.float64)


def random_llama(seed, *, width, n_hidden, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx=64, shared=True):
    rng = np.random.default_rng(seed)
    n_keys = width // n_heads * n_kv_heads

    def draw(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def norm(*shape):
        return (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)

    return Llama(
        n_heads,
        n_kv_heads,
        n_ctx,
        tok_embeddings=draw(n_vocab, width),
        attention_norm=norm(n_layers, width),
        ffn_norm=norm(n_layers, width),
        norm=norm(width),
        wq=draw(n_layers, width, width),
        wk=draw(n_layers, n_keys, width),
        wv=draw(n_layers, n_keys, width),
        wo=draw(n_layers, width, width),
        w1=draw(n_layers, n_hidden, width),
        w2=draw(n_layers, width, n_hidden),
        w3=draw(n_layers, n_hidden, width),
        output=None if shared else draw(n_vocab, width),
    )


def rms_norm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight


def rotate(x):
    """x: (n_tokens, heads, head_width); values 2i and 2i + 1 turn by position / 10000^(2i / head_width)."""
    n, _, head = x.shape
    angles = np.arange(n)[:, None] / 10000.0 ** (np.arange(0, head, 2) / head)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., ::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., ::2], turned[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
    return turned


def softmax(x):
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def greedy(model, tokens, n):
    tokens = list(tokens)
    for _ in range(n):
        tokens.append(int(np.argmax(model.logits(tokens)[-1])))
    return tokens


# files


def shape(model, *, signed):
    n_vocab, width = model.tok_embeddings.shape
    if signed and model.output is not None:
        n_vocab = -n_vocab
    n_layers, n_hidden, _ = model.w1.shape
    return struct.pack(
        "<7i", width, n_hidden, n_layers, model.n_heads, model.n_kv_heads, n_vocab, model.n_ctx
    )


def floats(*arrays):
    return b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)


def version_0(model):
    head = model.tok_embeddings.shape[1] // model.n_heads
    tables = np.full(model.n_ctx * head, 7.0)
    return (
        shape(model, signed=True)
        + floats(model.tok_embeddings, model.attention_norm, model.wq, model.wk, model.wv, model.wo)
        + floats(model.ffn_norm, model.w1, model.w2, model.w3, model.norm, tables)
        + (b"" if model.output is None else floats(model.output))
    )


def header(model, version, *flags):
    text = b"24ka" + struct.pack("<i", version) + shape(model, signed=False)
    return (text + struct.pack("<B", model.output is None) + b"".join(flags)).ljust(256, b"\0")


def version_1(model):
    matrices = [getattr(model, name) for name in model.matrices]
    last = [] if model.output is None else [model.output]
    return header(model, 1) + floats(
        model.attention_norm, model.ffn_norm, model.norm, model.tok_embeddings, *matrices, *last
    )


def version_2(model, group_size):
    """The file, and the model that it holds after rounding."""
    held = replace(model)
    body = floats(model.attention_norm, model.ffn_norm, model.norm)
    for name in ("tok_embeddings", *model.matrices, "output"):
        weights = getattr(model, name)
        if weights is None:
            continue
        rounded = np.empty_like(weights)
        for place in np.ndindex(weights.shape[: weights.ndim - 2]):
            integers, scales = quantize(weights[place], group_size)
            body += integers.tobytes() + floats(scales)
            rounded[place] = (integers * scales[:, None]).reshape(weights[place].shape)
        setattr(held, name, rounded)
    return header(model, 2, struct.pack("<i", group_size)) + body, held


def quantize(weights, group_size):
    groups = weights.reshape(-1, group_size)
    scales = (np.abs(groups).max(axis=1) / 127).astype(np.float32)
    return np.round(groups / scales[:, None]).astype(np.int8), scales


# the tokenizer


def words():
    """Pieces in the order of Llama 2's: special ones, bytes, merged ones (best first), characters."""
    characters = " abcdefghijklmnopqrstuvwxyzTOLé,.'\n"
    merged = [
        " t",
        "he",
        " the",
        "on",
        "ce",
        " a",
        "in",
        "nd",
        " and",
        "er",
        "On",
        " On",
        "Once",
        " Once",
        "up",
    ]
    merged += [" up", " upon", "pon", "me", "ti", " ti", " time", "ll", "ell", "ello", "th", "ed", " w", " s"]
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


def encode(text, pieces, scores):
    """As run.c: BOS, a space in front, characters (or their bytes), then always the best-scored pair."""
    ids = {piece: token for token, piece in enumerate(pieces)}
    tokens = [1]
    if text:
        tokens.append(ids[" "])
    for character in text:
        tokens += [ids[character]] if character in ids else [3 + byte for byte in character.encode()]
    while True:
        best = max(
            (
                (scores[token], -i, token)
                for i, pair in enumerate(pairwise(tokens[1:]), 1)
                if (token := ids.get(pieces[pair[0]] + pieces[pair[1]])) is not None
            ),
            default=None,
        )
        if best is None:
            return tokens
        i = -best[1]
        tokens[i : i + 2] = [best[2]]
