"""The beginning of a grown model's file: its metadata, and the offset of each tensor."""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_VERSION, GGMLQuantizationType, GGUFValueType, GGUFWriter

from shared.models.grow.layout import Tensor, Vector
from shared.models.grow.quantization import Encoder
from shared.models.grow.shape import Shape
from shared.models.grow.source import ARCHITECTURE, SourceModel

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


def n_bytes(tensor: Tensor, encoder: Encoder) -> int:
    """The size of a tensor in the file, without the padding after it."""
    if isinstance(tensor, Vector):
        return tensor.width * np.dtype(np.float32).itemsize
    return tensor.n_rows * encoder.row_bytes(tensor.width)


def write_header(
    part: Path, source: SourceModel, shape: Shape, encoder: Encoder, tensors: list[Tensor]
) -> None:
    """Create the file with everything up to the first tensor's alignment padding. May raise OSError."""
    writer = GGUFWriter(part, ARCHITECTURE)
    _introduce(writer, source, sum(tensor.n_parameters for tensor in tensors))
    _measure(writer, source, shape)
    writer.add_file_type(encoder.file_type)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    for key, field in source.fields.items():
        if key not in _NOT_COPIED and not key.startswith(_READER_PREFIX):
            _copy(writer, key, field.contents(), field.types)
    for tensor in tensors:
        # Vectors stay in full precision, as llama.cpp wants them.
        kind = GGMLQuantizationType.F32 if isinstance(tensor, Vector) else encoder.ggml_type
        ignored = np.dtype(np.float32)  # beside raw_dtype
        writer.add_tensor_info(
            tensor.name, tensor.dimensions, ignored, n_bytes(tensor, encoder), raw_dtype=kind
        )
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    finally:
        writer.close()


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
