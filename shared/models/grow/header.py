"""The metadata of a grown model."""

from typing import Any

from gguf import GGML_QUANT_VERSION, GGUFValueType, GGUFWriter

from shared.models.grow.layout import Tensor
from shared.models.grow.shape import Shape
from shared.models.grow.source import SourceModel
from shared.models.quantization import Encoder

# Said anew for the result, or no longer true of it.
_NOT_COPIED = {
    "general.architecture",
    "general.alignment",
    "general.name",
    "general.description",
    "general.size_label",
    "general.file_type",
    "general.quantization_version",
    "llama.embedding_length",
    "llama.block_count",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.attention.key_length",
    "llama.attention.value_length",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.rope.dimension_count",
}
_READER_PREFIX = "GGUF."  # GGUFReader's own names for the file's first numbers


def describe(
    writer: GGUFWriter, source: SourceModel, shape: Shape, encoder: Encoder, tensors: list[Tensor]
) -> None:
    """Add all metadata but the architecture."""
    _introduce(writer, source, sum(tensor.n_parameters for tensor in tensors))
    _measure(writer, source, shape)
    writer.add_file_type(encoder.file_type)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    for key, field in source.fields.items():
        if key not in _NOT_COPIED and not key.startswith(_READER_PREFIX):
            _copy(writer, key, field.contents(), field.types)


def _introduce(writer: GGUFWriter, source: SourceModel, n_parameters: int) -> None:
    """Describe the file as a grown model, so that it is not mistaken for one with more knowledge."""
    writer.add_name(f"{source.name}-grown")
    writer.add_description(
        f"{source.name} ({source.n_parameters / 1e6:.1f}M parameters) grown to {n_parameters / 1e6:.1f}M:"
        " the small model's answers at a big model's cost, for demonstrations and measurements"
    )


def _measure(writer: GGUFWriter, source: SourceModel, shape: Shape) -> None:
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(shape.n_feed_forward)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_heads // source.heads_per_group)
    # llama.cpp divides width by n_heads unless these are given.
    writer.add_key_length(source.head_width)
    writer.add_value_length(source.head_width)
    writer.add_rope_dimension_count(source.head_width)
    # The mean square is taken over more dimensions, the added ones zero: see `layout`.
    writer.add_layer_norm_rms_eps(source.epsilon * source.shape.width / shape.width)


def _copy(writer: GGUFWriter, key: str, value: Any, types: list[GGUFValueType]) -> None:
    kind = types[0]
    if kind != GGUFValueType.ARRAY:
        writer.add_key_value(key, value, kind)
    elif value:  # an empty array does not say the type of its elements
        writer.add_key_value(key, value, kind, sub_type=types[-1])
