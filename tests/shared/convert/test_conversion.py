"""A conversion is written whole or not at all, with matrices in the wanted type."""

import pytest
from gguf import GGUFReader

from shared.convert.converted_file import read_conversion
from shared.errors import ConfigError
from shared.llama.vocabulary import Vocabulary


@pytest.mark.parametrize(("stored_as", "matrix"), [("auto", "F32"), ("f32", "F32"), ("f16", "F16")])
def test_matrices_are_stored_as_wanted_and_vectors_exactly(checkpoint, tmp_path, stored_as, matrix):
    path = tmp_path / "out.gguf"
    read_conversion(checkpoint).file(stored_as).write(path)
    types = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(path).tensors}
    assert types["blk.0.attn_q.weight"] == matrix
    assert types["blk.0.attn_norm.weight"] == "F32"


def test_rows_that_fill_no_blocks_are_stored_in_half_precision(gpt2_folder):
    tensors = read_conversion(gpt2_folder).file("q8_0").tensors
    types = {each.weights.name: each.encoder.ggml_type.name for each in tensors}
    assert types["blk.0.ffn_up.weight"] == "F16"  # rows of 60
    assert types["blk.0.attn_qkv.bias"] == "F32"


def test_a_folder_that_is_not_there_is_an_error(checkpoint, tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        read_conversion(checkpoint).file().write(tmp_path / "missing" / "model.gguf")


def test_an_outline_has_the_vocabulary_and_the_sizes(checkpoint, tmp_path):
    file = read_conversion(checkpoint).file()
    file.write(tmp_path / "whole.gguf")
    file.write_outline(tmp_path / "outline.gguf")
    whole, outline = (Vocabulary.load(tmp_path / f"{name}.gguf") for name in ("whole", "outline"))
    assert outline.identify() == whole.identify()
    assert (outline.info.n_params, outline.info.size) == (whole.info.n_params, whole.info.size)
