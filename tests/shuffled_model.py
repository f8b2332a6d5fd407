"""The shipped draft model with other token ids: a model with another vocabulary and the same quality."""

import random

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from shared.model_files.builtin import builtin_draft
from tests.tiny_models import WRITTEN, write_and_close

_BY_TOKEN = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}


def write_shuffled(path):
    """Write the model, and return its path."""
    source = GGUFReader(builtin_draft())
    order = list(range(len(source.fields["tokenizer.ggml.tokens"].data)))
    random.Random(1).shuffle(order)
    writer = GGUFWriter(path, "llama")
    for key, field in source.fields.items():
        if key.startswith(WRITTEN):
            continue
        value = field.contents()
        if key in _BY_TOKEN:
            value = [value[token] for token in order]
        if key.endswith("_token_id"):
            value = order.index(value)
        is_array = field.types[0] == GGUFValueType.ARRAY
        writer.add_key_value(key, value, field.types[0], sub_type=field.types[-1] if is_array else None)
    for tensor in source.tensors:
        data = tensor.data[order] if tensor.name == "token_embd.weight" else tensor.data
        writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=tensor.tensor_type)
    write_and_close(writer)
    return path
