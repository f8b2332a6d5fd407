"""Which tensors a grown model has, and the values for which the added part has no effect on the output.

Write d for the source's width and D for the new one. Three facts make the function stay the same:

* The embedding has zeros in the new dimensions of the residual stream, and every matrix that writes to the
  stream (`attn_output`, `ffn_down`) has zero rows there, so those dimensions stay zero.
* New heads and new feed-forward units compute something (noise), but the columns of `attn_output` and
  `ffn_down` that read them are zero. In an added layer both are zero everywhere: it is the identity.
* RMSNorm divides by the mean square over D dimensions instead of d, and only d of them are non-zero:
  norm weights shrink by sqrt(d / D) and epsilon by d / D.

Heads keep their width, so rotary positions stay; they grow in whole groups, so that each old query head
keeps its key/value head.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shared.errors import ConfigError
from shared.models.grow.source import (
    Shape,
    SourceModel,
    require_larger,
    require_whole_blocks,
    require_whole_groups,
)


@dataclass(frozen=True)
class Matrix:
    """`n_rows` of `width`: the origin in the top-left corner, zeros to its right, noise or zeros below."""

    name: str
    n_rows: int
    width: int
    origin: str | None
    """The source's tensor, or None in an added layer."""
    noise: bool
    """Whether the rows below the origin hold noise, because nothing reads their output."""

    @property
    def dimensions(self) -> tuple[int, ...]:
        return (self.n_rows, self.width)

    @property
    def n_parameters(self) -> int:
        return self.n_rows * self.width


@dataclass(frozen=True)
class Vector:
    """`width` values: the origin times `scale`, then zeros; ones throughout without an origin."""

    name: str
    width: int
    origin: str | None
    scale: float

    @property
    def dimensions(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def n_parameters(self) -> int:
        return self.width


Tensor = Matrix | Vector


def lay_out(source: SourceModel, shape: Shape, block: int) -> list[Tensor]:
    """Every tensor of the grown model, in the order of the file.

    `block` is the number of values that the quantization packs together. Raises ConfigError for a shape
    that the source cannot grow to, and for a source with tensors that are not of the plain llama kind.
    """
    require_larger(shape, source.shape)
    require_whole_groups(shape.n_heads, source.heads_per_group)
    heads = shape.n_heads * source.head_width
    require_whole_blocks(
        {"width": shape.width, "n_heads": heads, "n_feed_forward": shape.n_feed_forward}, block
    )
    tensors = [*_outside(source, shape)]
    places = _places(source.shape.n_layers, shape.n_layers)
    for layer in range(shape.n_layers):
        tensors += _layer(source, shape, layer, places.get(layer))
    used = {tensor.origin for tensor in tensors}
    unknown = sorted(source.tensor_names - used)
    if unknown:
        raise ConfigError(f"{source.path} has {unknown[0]}: only plain llama models can grow")
    missing = sorted(name for name in used - source.tensor_names if name is not None)
    if missing:
        raise ConfigError(f"{source.path} lacks {missing[0]}: it is not a complete llama model")
    return tensors


def _places(n_old: int, n_new: int) -> dict[int, int]:
    """New layer → old layer: the real layers, spread over the depth."""
    return {old * (n_new - 1) // max(n_old - 1, 1): old for old in range(n_old)}


def _outside(source: SourceModel, shape: Shape) -> Iterator[Tensor]:
    """What is not in a layer. `output` is absent where it is tied to the embedding."""
    for name in ("token_embd.weight", "output.weight"):
        if name in source.tensor_names:
            n_vocab = source.dimensions(name)[0]
            yield Matrix(name, n_vocab, shape.width, name, noise=False)
    yield _norm(source, shape, "output_norm.weight", "output_norm.weight")
    factors = "rope_freqs.weight"
    if factors in source.tensor_names:
        yield Vector(factors, source.dimensions(factors)[0], factors, scale=1.0)


def _layer(source: SourceModel, shape: Shape, layer: int, old: int | None) -> Iterator[Tensor]:
    queries = shape.n_heads * source.head_width
    keys = queries // source.heads_per_group
    width, hidden = shape.width, shape.n_feed_forward
    #        part            rows     columns  noise: does nothing read its new rows?
    parts = (("attn_q",      queries, width,   True),
             ("attn_k",      keys,    width,   True),
             ("attn_v",      keys,    width,   True),
             ("attn_output", width,   queries, False),
             ("ffn_gate",    hidden,  width,   True),
             ("ffn_up",      hidden,  width,   True),
             ("ffn_down",    width,   hidden,  False))  # fmt: skip
    for part in ("attn_norm", "ffn_norm"):
        yield _norm(source, shape, _name(layer, part), _origin(old, part))
    for part, n_rows, n_columns, noise in parts:
        yield Matrix(_name(layer, part), n_rows, n_columns, _origin(old, part), noise)


def _norm(source: SourceModel, shape: Shape, name: str, origin: str | None) -> Vector:
    return Vector(name, shape.width, origin, scale=math.sqrt(source.shape.width / shape.width))


def _origin(old: int | None, part: str) -> str | None:
    return None if old is None else _name(old, part)


def _name(layer: int, part: str) -> str:
    return f"blk.{layer}.{part}.weight"
