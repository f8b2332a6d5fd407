"""llama2.c checkpoints give the logits, the tokens and the text of llama2.c."""

import struct

import numpy as np
import pytest

from shared.convert.converted_file import read_conversion
from shared.convert.gguf_file import Encoder
from shared.errors import ModelLoadError
from tests.shared.convert import llama2c_reference as llama2c
from tests.shared.convert.conftest import PIECES, converted, logits, small_llama

SHAPES = {
    "stories15M's width": {"width": 288, "n_hidden": 768, "n_heads": 6, "n_kv_heads": 6},
    "grouped queries": {"width": 96, "n_hidden": 160, "n_heads": 6, "n_kv_heads": 2},
    "one key/value head, odd width": {"width": 40, "n_hidden": 90, "n_heads": 4, "n_kv_heads": 1},
}
TOKENS = [1, *range(5, 300, 9)]


@pytest.fixture
def written(tokenizer):
    """Writes a checkpoint next to its tokenizer."""

    def write(data):
        path = tokenizer.with_name("model.bin")
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("shared", [True, False], ids=["shared classifier", "own classifier"])
@pytest.mark.parametrize("version", [llama2c.version_0, llama2c.version_1])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_floating_point_checkpoints_give_llama2c_s_logits(written, shape, version, shared):
    reference = small_llama(**shape, shared=shared)
    found = logits(converted(written(version(reference))), TOKENS)
    assert np.abs(found - reference.logits(TOKENS)).max() < 1e-4


@pytest.mark.parametrize(
    ("group_size", "shape"),
    [
        (64, {"shared": True}),
        (64, {"shared": False}),
        (32, {}),
        (8, {}),
        pytest.param(16, {"width": 40, "n_hidden": 88, "n_kv_heads": 4}, id="groups span rows"),
    ],
)
def test_quantized_checkpoints_give_the_logits_of_their_integers(written, group_size, shape):
    data, reference = llama2c.version_2(small_llama(**{"width": 64, "n_hidden": 192} | shape), group_size)
    assert np.abs(logits(converted(written(data), "f32"), TOKENS) - reference.logits(TOKENS)).max() < 1e-4


def test_quantized_checkpoints_keep_their_integers(written):
    data, reference = llama2c.version_2(small_llama(width=64, n_hidden=192), 64)
    conversion = read_conversion(written(data))
    (weights,) = (each for each in conversion.weights if each.name == "blk.1.attn_q.weight")
    blocks = weights.encoded(Encoder("q8_0"), 3, 5).view([("scale", "<f2"), ("values", "i1", 32)])
    values = (blocks["values"] * blocks["scale"].astype(np.float32)[..., None]).reshape(2, 64)
    assert np.allclose(values, reference.weights["wq"][1][3:5], rtol=2**-11, atol=0)
    assert {each.encoder.ggml_type.name for each in conversion.file().tensors} == {"F32", "Q8_0"}


@pytest.mark.parametrize("stored_as", ["f16", "q8_0"])
def test_smaller_types_stay_near(written, stored_as):
    reference = small_llama(width=96, n_hidden=192)
    path = written(llama2c.version_0(reference))
    difference = np.abs(logits(converted(path, stored_as), TOKENS) - reference.logits(TOKENS)).max()
    assert difference < {"f16": 0.02, "q8_0": 0.4}[stored_as]


def test_a_text_ends_where_the_next_would_begin(checkpoint):
    assert converted(checkpoint).vocabulary.end_tokens == {1, 2}


def test_the_context_is_the_checkpoint_s(checkpoint):
    info = converted(checkpoint).vocabulary.info
    assert (info.n_ctx_train, info.name) == (64, "stories")


@pytest.mark.parametrize("version", [llama2c.version_0, llama2c.version_1])
@pytest.mark.parametrize("change", [-400, -4, 4])
def test_a_checkpoint_of_another_length_is_refused(written, version, change):
    data = version(small_llama())
    path = written(data[:change] if change < 0 else data + bytes(change))
    with pytest.raises(ModelLoadError, match=r"its header describes \d+ bytes, but the file has \d+"):
        read_conversion(path)


@pytest.mark.parametrize("field", range(7))
@pytest.mark.parametrize("value", [0, -5, 2**31 - 1])
def test_a_lie_in_the_header_is_refused(written, field, value):
    data = bytearray(llama2c.version_1(small_llama()))
    struct.pack_into("<i", data, 8 + 4 * field, value)
    path = written(data)
    if field == 6 and value > 0:  # the length of the context is not to be seen in the size of the file
        assert read_conversion(path)
        return
    with pytest.raises(ModelLoadError):
        read_conversion(path)


@pytest.mark.parametrize("group_size", [0, -64, 7, 2**31 - 1])
def test_a_wrong_group_size_is_refused(written, group_size):
    data, _ = llama2c.version_2(small_llama(width=64, n_hidden=192), 64)
    path = written(data[:37] + struct.pack("<i", group_size) + data[41:])
    with pytest.raises(ModelLoadError, match="group size"):
        read_conversion(path)


def test_a_later_version_is_refused(checkpoint):
    data = checkpoint.read_bytes()
    checkpoint.write_bytes(data[:4] + struct.pack("<i", 3) + data[8:])
    with pytest.raises(ModelLoadError, match="its version is 3"):
        read_conversion(checkpoint)


def test_a_checkpoint_without_a_tokenizer_is_refused(checkpoint, tokenizer):
    tokenizer.unlink()
    with pytest.raises(ModelLoadError, match=r"without its tokenizer\.bin"):
        read_conversion(checkpoint)


def test_a_tokenizer_may_be_named_by_its_size(checkpoint, tokenizer):
    tokenizer.rename(tokenizer.with_name(f"tok{len(PIECES)}.bin"))
    assert read_conversion(checkpoint)


def test_a_tokenizer_may_be_elsewhere(checkpoint, tokenizer, tmp_path):
    elsewhere = tokenizer.rename(tmp_path / "other.bin")
    assert elsewhere in read_conversion(checkpoint, elsewhere).files
