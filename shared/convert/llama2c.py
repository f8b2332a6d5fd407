"""Reads llama2.c checkpoints (github.com/karpathy/llama2.c), in the three versions that its export.py writes.

    version 0   7 int32; f32 weights, in the order of training; a negative vocabulary size: own classifier
    version 1   magic, version, 7 int32, a byte "classifier shared", zeros up to 256 bytes; f32, norms first
    version 2   as version 1, after that byte an int32 group size; norms in f32, then each matrix as int8,
                followed by one f32 scale per group of `group_size` values

Rotary positions are in pairs of neighbors, as in llama.cpp's llama architecture, so rows are not permuted.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from shared.convert.conversion import Conversion, SourceBytes
from shared.convert.gguf_file import Bytes, Encoder, Floats, Weights
from shared.convert.tokenizer_bin import TokenizerBin, read_tokenizer
from shared.errors import ModelLoadError

MAGIC = struct.pack("<I", 0x616B3432)  # "ak42"
"""The first bytes of versions 1 and 2."""
_SHAPE = struct.Struct("<7i")
_HEADER_BYTES = 256
_FLOAT_BYTES = 4
_EPSILON = 1e-5
_BLOCK = 32
"""The number of values in a block of q8_0, which has one scale."""
_BLOCK_TYPE = np.dtype([("scale", "<f2"), ("values", "i1", _BLOCK)])
_MAX_LAYERS = 512
"""The maximum number of layers: llama.cpp aborts if there are more."""


@dataclass(frozen=True, slots=True)
class Llama2cHeader:
    """The header of a checkpoint. group_size: 0 if weights are f32."""

    version: int
    width: int
    n_hidden: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    n_vocab: int
    n_ctx: int
    shares_classifier: bool
    group_size: int

    @classmethod
    def read(cls, head: bytes) -> "Llama2cHeader":
        """Parse the first 256 bytes of a file (28 in version 0). Raises ValueError with the reason."""
        if not head.startswith(MAGIC):
            return cls._checked(0, head[: _SHAPE.size], group_size=0)
        if len(head) < _HEADER_BYTES:
            raise ValueError("it ends within its header")
        version, shape_at = struct.unpack_from("<i", head, 4)[0], 8
        flags_at = shape_at + _SHAPE.size
        group_size = struct.unpack_from("<i", head, flags_at + 1)[0]
        match version:
            case 1:
                return cls._checked(1, head[shape_at:flags_at], bool(head[flags_at]), 0)
            case 2 if group_size > 0:
                return cls._checked(2, head[shape_at:flags_at], bool(head[flags_at]), group_size)
            case 2:
                raise ValueError(f"its group size is {group_size}")
        raise ValueError(f"its version is {version}, but only 0, 1 and 2 are supported")

    @classmethod
    def _checked(
        cls, version: int, shape: bytes, shares: bool | None = None, group_size: int = 0
    ) -> "Llama2cHeader":
        if len(shape) < _SHAPE.size:
            raise ValueError("it ends within its header")
        width, n_hidden, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx = _SHAPE.unpack(shape)
        if shares is None:
            shares, n_vocab = n_vocab > 0, abs(n_vocab)
        if min(width, n_hidden, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx) < 1:
            raise ValueError("one of the sizes in its header is not positive")
        if width % (2 * n_heads) or n_heads % n_kv_heads or n_layers > _MAX_LAYERS:
            raise ValueError(
                f"its header describes {n_layers} layers of width {width} with {n_heads} heads and "
                f"{n_kv_heads} key/value heads, which is inconsistent"
            )
        return cls(
            version, width, n_hidden, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx, shares, group_size
        )

    @property
    def head_width(self) -> int:
        return self.width // self.n_heads

    def places(self) -> Iterator["TensorPlace"]:
        """Yield the place of each tensor and each unused part, in the order of the file; then the file's end.

        Raises ValueError.
        """
        at = _HEADER_BYTES if self.version else _SHAPE.size
        for name, *dimensions in self._order():
            n_values = math.prod(dimensions)
            group_size = self.group_size if len(dimensions) > 1 else 0
            if group_size and n_values % group_size:
                raise ValueError(
                    f"its group size {group_size} does not divide the {n_values} values of {name}"
                )
            yield TensorPlace(name, tuple(dimensions), at, group_size)
            at += n_values + n_values // group_size * _FLOAT_BYTES if group_size else n_values * _FLOAT_BYTES
        yield TensorPlace("", (0,), at, 0)

    def _order(self) -> Iterator[tuple[str, *tuple[int, ...]]]:
        """Yield each tensor's name in GGUF, and its dimensions."""
        embedding = ("token_embd.weight", self.n_vocab, self.width)
        final_norm = ("output_norm.weight", self.width)
        if self.version == 0:
            yield embedding
            yield from self._each("attn_norm", self.width)
            yield from self._attention()
            yield from self._each("ffn_norm", self.width)
            yield from self._feed_forward()
            yield final_norm
            yield ("", self.n_ctx * self.head_width)  # tables of rotary positions, which are unused
        else:
            yield from self._each("attn_norm", self.width)
            yield from self._each("ffn_norm", self.width)
            yield final_norm
            yield embedding
            yield from self._attention()
            yield from self._feed_forward()
        if not self.shares_classifier:
            yield ("output.weight", self.n_vocab, self.width)

    def _attention(self) -> Iterator[tuple[str, *tuple[int, ...]]]:
        n_keys = self.n_kv_heads * self.head_width
        yield from self._each("attn_q", self.width, self.width)
        yield from self._each("attn_k", n_keys, self.width)
        yield from self._each("attn_v", n_keys, self.width)
        yield from self._each("attn_output", self.width, self.width)

    def _feed_forward(self) -> Iterator[tuple[str, *tuple[int, ...]]]:
        yield from self._each("ffn_gate", self.n_hidden, self.width)
        yield from self._each("ffn_down", self.width, self.n_hidden)
        yield from self._each("ffn_up", self.n_hidden, self.width)

    def _each(self, part: str, *dimensions: int) -> Iterator[tuple[str, *tuple[int, ...]]]:
        for layer in range(self.n_layers):
            yield (f"blk.{layer}.{part}.weight", *dimensions)


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """The place of a tensor in a checkpoint. at: offset in bytes. name: empty for an unused part."""

    name: str
    dimensions: tuple[int, ...]
    at: int
    group_size: int

    def weights(self, data: SourceBytes) -> Weights:
        if not self.group_size:
            return Weights(self.name, self.dimensions, partial(self._floats, data))
        rows, encoded = partial(self._dequantized, data), partial(self._encoded, data)
        return Weights(self.name, self.dimensions, rows, encoded)

    def _floats(self, data: SourceBytes, start: int, stop: int) -> Floats:
        width = self.dimensions[-1]
        at = self.at + start * width * _FLOAT_BYTES
        return data.array(at, (stop - start) * width, "<f4").reshape(-1, width)

    def _dequantized(self, data: SourceBytes, start: int, stop: int) -> Floats:
        width = self.dimensions[-1]
        first, last = start * width, stop * width
        integers = data.array(self.at + first, last - first, "i1")
        scales = self._scales(data)[np.arange(first, last) // self.group_size]
        return (integers * scales).reshape(-1, width)

    def _encoded(self, data: SourceBytes, encoder: Encoder, start: int, stop: int) -> Bytes | None:
        """Return the rows as q8_0 with the same integers as in the checkpoint; only the scales are rounded,
        to f16. None for other types.
        """
        width = self.dimensions[-1]
        if encoder.ggml_type.name != "Q8_0" or width % _BLOCK or self.group_size % _BLOCK:
            return None
        first, last = start * width, stop * width
        packed = np.empty((last - first) // _BLOCK, _BLOCK_TYPE)
        packed["values"] = data.array(self.at + first, last - first, "i1").reshape(-1, _BLOCK)
        packed["scale"] = self._scales(data)[np.arange(first, last, _BLOCK) // self.group_size]
        return packed.view(np.uint8).reshape(stop - start, -1)

    def _scales(self, data: SourceBytes) -> Floats:
        n_values = math.prod(self.dimensions)
        return data.array(self.at + n_values, n_values // self.group_size, "<f4")


def read_checkpoint(path: Path, tokenizer: Path | None) -> Conversion:
    """Return the conversion for the checkpoint at `path`; raises ModelLoadError.

    tokenizer: a tokenizer.bin; None: the one in the checkpoint's folder.
    """
    data = SourceBytes(path)
    try:
        checkpoint = Llama2cHeader.read(data.head(_HEADER_BYTES))
        *places, end = checkpoint.places()
    except ValueError as error:
        raise ModelLoadError(f"{path} is not a llama2.c checkpoint: {error}") from error
    if end.at != data.n_bytes:
        what = "cut off" if end.at > data.n_bytes else "not a llama2.c checkpoint"
        raise ModelLoadError(
            f"{path} is {what}: its header describes {end.at} bytes, but the file has {data.n_bytes}"
        )
    tokenizer = tokenizer or _tokenizer_in_folder(path, checkpoint.n_vocab)
    vocabulary = read_tokenizer(tokenizer, checkpoint.n_vocab)
    return Conversion(
        path=path,
        kind=f"a llama2.c checkpoint of version {checkpoint.version}",
        files=(path, tokenizer),
        architecture="llama",
        describe=partial(_describe, checkpoint, vocabulary),
        weights=[place.weights(data) for place in places if place.name],
        source_type="q8_0" if checkpoint.group_size else "f32",
    )


def _tokenizer_in_folder(path: Path, n_vocab: int) -> Path:
    """Return the tokenizer in the same folder, named as in llama2.c: tokenizer.bin, or tok4096.bin for 4096
    tokens.
    """
    names = ("tokenizer.bin", f"tok{n_vocab}.bin")
    found = next((each for name in names if (each := path.with_name(name)).is_file()), None)
    if found is None:
        raise ModelLoadError(
            f"{path} is a llama2.c checkpoint without its tokenizer.bin. Put tokenizer.bin beside "
            "the checkpoint or set --tokenizer"
        )
    return found


def _describe(checkpoint: Llama2cHeader, vocabulary: TokenizerBin, writer: GGUFWriter) -> None:
    writer.add_context_length(checkpoint.n_ctx)
    writer.add_embedding_length(checkpoint.width)
    writer.add_block_count(checkpoint.n_layers)
    writer.add_feed_forward_length(checkpoint.n_hidden)
    writer.add_head_count(checkpoint.n_heads)
    writer.add_head_count_kv(checkpoint.n_kv_heads)
    writer.add_rope_dimension_count(checkpoint.head_width)
    writer.add_layer_norm_rms_eps(_EPSILON)
    writer.add_vocab_size(checkpoint.n_vocab)
    vocabulary.describe(writer)
