"""Reads GPT-2 from a Hugging Face folder: config.json, model.safetensors or shards, vocab.json, merges.txt.

Its linear layers are `Conv1D` layers with transposed matrices. Queries, keys and values are one matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from gguf import GGUFWriter, TokenType
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from shared.convert.conversion import Conversion, read_small
from shared.convert.gguf_file import Quantization, Weights
from shared.convert.safetensors import SafetensorsFile, SafetensorsFolder, is_known_type
from shared.errors import ModelLoadError

CONFIG: Final = "config.json"
_MAX_CONFIG = 1 << 20
_MAX_LAYERS = 512
"""The maximum number of layers: llama.cpp aborts if there are more."""
_MAX_SIZE = 1 << 24
_GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
"""The names of GELU's tanh approximation, which llama.cpp computes."""
_SOURCE_TYPES: dict[str, Quantization] = {"F32": "f32", "F16": "f16", "BF16": "f32"}

Size = Annotated[int, Field(ge=1, le=_MAX_SIZE, strict=True)]


_MAX_BYTES = 16 << 20
_END = "<|endoftext|>"

_TOKENS: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, Annotated[int, Field(ge=0, strict=True)]])


def byte_alphabet() -> list[str]:
    """Return the character that represents each byte (`bytes_to_unicode` of OpenAI's encoder.py).

    Printable bytes represent themselves; the other bytes are characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


@dataclass(frozen=True, slots=True)
class Gpt2Vocabulary:
    """The vocabulary of a GPT-2 model. end: the id of the token that ends a text.

    tokens: the tokens by id, without the model's unused tokens at the end. merges: best first.
    """

    tokens: list[str]
    merges: list[str]
    end: int

    def describe(self, writer: GGUFWriter, n_vocab: int) -> None:
        """Add the vocabulary to a GGUF file, with unused tokens up to `n_vocab`."""
        unused = [f"[PAD{token}]" for token in range(len(self.tokens), n_vocab)]
        types = [TokenType.NORMAL] * len(self.tokens) + [TokenType.UNUSED] * len(unused)
        types[self.end] = TokenType.CONTROL
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([*self.tokens, *unused])
        writer.add_token_types(types)
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(self.end)
        writer.add_eos_token_id(self.end)
        writer.add_add_bos_token(False)


def read_vocabulary(folder: Path, n_vocab: int, end: int | None) -> Gpt2Vocabulary:
    """Read vocab.json and merges.txt of a folder, for a model of `n_vocab` tokens; raises ModelLoadError.

    end: the id of the end token; None: <|endoftext|>.
    """
    path = folder / "vocab.json"
    try:
        ids = _TOKENS.validate_json(read_small(path, _MAX_BYTES))
    except ValidationError as error:
        raise ModelLoadError(f"{path} is not a vocabulary: {error.errors()[0]['msg']}") from error
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))) or "" in ids:
        raise ModelLoadError(f"{path} is not a vocabulary: its ids are not 0, 1, 2, … each once")
    if len(tokens) > n_vocab:
        raise ModelLoadError(f"{path} has {len(tokens)} tokens, but config.json says vocab_size {n_vocab}")
    if missing := set(byte_alphabet()) - ids.keys():
        raise ModelLoadError(
            f"{path} is not a GPT-2 vocabulary: it lacks tokens for {len(missing)} of the 256 bytes"
        )
    end = ids.get(_END) if end is None else end
    if end is None or not 0 <= end < len(tokens):
        raise ModelLoadError(f"{path} has no end token: neither {_END} nor the eos_token_id of config.json")
    return Gpt2Vocabulary(tokens, read_merges(folder / "merges.txt", ids), end)


def read_merges(path: Path, known: dict[str, int]) -> list[str]:
    """Read the merges of merges.txt, best first; raises ModelLoadError."""
    try:
        lines = read_small(path, _MAX_BYTES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ModelLoadError(f"{path} is not in UTF-8") from error
    if lines[0].startswith("#version"):
        del lines[0]
    merges = [line.removesuffix("\r") for line in lines if line.strip()]
    for merge in merges:
        pair = merge.split(" ")
        if len(pair) != 2 or not all(pair) or "".join(pair) not in known:  # noqa: PLR2004 - a pair
            raise ModelLoadError(f"{path} does not fit vocab.json: {merge[:100]!r} is not a token")
    if len(set(merges)) < len(merges) or not merges:
        raise ModelLoadError(f"{path} has {'a merge twice' if merges else 'no merges'}")
    return merges


class Gpt2Config(BaseModel):
    """The fields of config.json that matter, with the defaults of transformers."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    n_embd: Size = 768
    n_head: Size = 12
    n_layer: Annotated[int, Field(ge=1, le=_MAX_LAYERS, strict=True)] = 12
    n_positions: Size = 1024
    vocab_size: Size = 50257
    n_inner: Size | None = None
    layer_norm_epsilon: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 1e-5
    activation_function: str = "gelu_new"
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True
    eos_token_id: int | None = None

    @property
    def n_hidden(self) -> int:
        return self.n_inner or 4 * self.n_embd

    def why_impossible(self) -> str | None:
        """Return why llama.cpp's GPT-2 cannot compute the model; None if it can."""
        if self.n_embd % self.n_head:
            return f"its width {self.n_embd} is not a multiple of its number of heads, {self.n_head}"
        if self.activation_function not in _GELU:
            return (
                f"its activation function is {self.activation_function[:40]}, but only {_GELU[0]} is "
                "supported"
            )
        if not self.scale_attn_weights or self.scale_attn_by_inverse_layer_idx:
            return "it scales attention differently from GPT-2"
        return None


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A tensor in the folder and in the GGUF file. dimensions: the dimensions in the GGUF file, where
    matrices of Conv1D are transposed.
    """

    origin: str
    name: str
    dimensions: tuple[int, ...]
    transposed: bool = False
    exact: bool = False

    @property
    def origin_dimensions(self) -> list[int]:
        return list(reversed(self.dimensions) if self.transposed else self.dimensions)


def read_folder(folder: Path) -> Conversion:
    """Return the conversion for the model in `folder`; raises ModelLoadError."""
    config = read_config(folder / CONFIG)
    if reason := config.why_impossible():
        raise ModelLoadError(f"{folder} cannot be converted: {reason}")
    tensors = SafetensorsFolder(folder)
    vocabulary = read_vocabulary(folder, config.vocab_size, config.eos_token_id)
    mappings = [*_outside(config), *_layers(config)]
    weights = [_weights(folder, tensors.files, mapping) for mapping in mappings]
    embedding = tensors.files[_origin(mappings[0], tensors.files)]
    return Conversion(
        path=folder,
        kind="GPT-2 in a Hugging Face folder",
        files=(folder / CONFIG, *tensors.paths, folder / "vocab.json", folder / "merges.txt"),
        architecture="gpt2",
        describe=partial(_describe, config, vocabulary),
        weights=weights,
        source_type=_SOURCE_TYPES[embedding.entries[_origin(mappings[0], tensors.files)].dtype],
    )


def read_config(path: Path) -> Gpt2Config:
    """Read config.json; raises ModelLoadError, also if it describes another kind of model."""
    try:
        kind = _ModelKind.model_validate_json(data := read_small(path, _MAX_CONFIG)).model_type
        if kind == "gpt2":
            return Gpt2Config.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        raise ModelLoadError(f"{path} is not a GPT-2 config: {where}: {first['msg']}") from error
    raise ModelLoadError(
        f"{path.parent} is a Hugging Face folder of the type {kind[:40]!r}, but only gpt2 can be "
        "converted here. Look for the model in GGUF format, or convert it with llama.cpp's "
        "convert_hf_to_gguf.py"
    )


class _ModelKind(BaseModel):
    model_type: str = "unknown"


def _outside(config: Gpt2Config) -> Iterator[_Mapping]:
    """Yield the tensors that are not in a layer."""
    width = config.n_embd
    yield _Mapping("wte.weight", "token_embd.weight", (config.vocab_size, width))
    yield _Mapping("wpe.weight", "position_embd.weight", (config.n_positions, width), exact=True)
    yield from _pair("ln_f", "output_norm", (width,))
    if not config.tie_word_embeddings:
        yield _Mapping("lm_head.weight", "output.weight", (config.vocab_size, width))


def _layers(config: Gpt2Config) -> Iterator[_Mapping]:
    width, n_hidden = config.n_embd, config.n_hidden
    for layer in range(config.n_layer):
        for origin, name, dimensions in (
            ("ln_1", "attn_norm", (width,)),
            ("attn.c_attn", "attn_qkv", (3 * width, width)),
            ("attn.c_proj", "attn_output", (width, width)),
            ("ln_2", "ffn_norm", (width,)),
            ("mlp.c_fc", "ffn_up", (n_hidden, width)),
            ("mlp.c_proj", "ffn_down", (width, n_hidden)),
        ):
            yield from _pair(f"h.{layer}.{origin}", f"blk.{layer}.{name}", dimensions)


def _pair(origin: str, name: str, dimensions: tuple[int, ...]) -> Iterator[_Mapping]:
    """Yield weight and bias; the weight belongs to a Conv1D if it is a matrix."""
    yield _Mapping(f"{origin}.weight", f"{name}.weight", dimensions, transposed=len(dimensions) > 1)
    yield _Mapping(f"{origin}.bias", f"{name}.bias", dimensions[:1])


def _weights(folder: Path, files: dict[str, SafetensorsFile], mapping: _Mapping) -> Weights:
    origin = _origin(mapping, files)
    if origin not in files:
        raise ModelLoadError(f"{folder} lacks the tensor {mapping.origin}. Download the folder again")
    entry = files[origin].entries[origin]
    if entry.shape != mapping.origin_dimensions or not is_known_type(entry):
        raise ModelLoadError(
            f"{folder} has {origin} as {entry.dtype[:10]} {entry.shape}, but config.json says "
            f"{mapping.origin_dimensions} in F32, F16 or BF16"
        )
    read = partial(files[origin].rows, origin, transposed=mapping.transposed)
    return Weights(mapping.name, mapping.dimensions, read, exact=mapping.exact)


def _origin(mapping: _Mapping, files: dict[str, Any]) -> str:
    """Return the tensor's name with the prefix of transformers, or without it, as in OpenAI's own files."""
    return name if (name := f"transformer.{mapping.origin}") in files else mapping.origin


def _describe(config: Gpt2Config, vocabulary: Gpt2Vocabulary, writer: GGUFWriter) -> None:
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.n_hidden)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_vocab_size(config.vocab_size)
    vocabulary.describe(writer, config.vocab_size)
