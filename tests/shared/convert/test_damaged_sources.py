"""A changed source is refused with a message, or llama.cpp can read its conversion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.convert.converted_file import read_conversion
from shared.errors import ModelLoadError
from shared.llama.vocabulary import Vocabulary
from tests.shared.convert import gpt2_reference, llama2c_reference
from tests.shared.convert.conftest import PIECES, SCORES, small_gpt2, small_llama

_HEAD = 4096
"""The number of bytes at the beginning of a file that may change."""

CHECKPOINTS = {
    "version 0": llama2c_reference.version_0(small_llama()),
    "version 1": llama2c_reference.version_1(small_llama()),
    "version 2": llama2c_reference.version_2(small_llama(width=64, n_hidden=96), 32)[0],
}
CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=6)
LENGTHS = st.one_of(st.just(1.0), st.floats(0, 1))


def damage(data, changes, length, n_head=_HEAD):
    """Change some bytes of the head, and perhaps cut off the end."""
    damaged = bytearray(data)
    for where, value in changes:
        damaged[int(where * min(n_head, len(damaged)))] = value
    return bytes(damaged[: int(length * len(damaged))])


def check(source, folder):
    try:
        conversion = read_conversion(source)
    except ModelLoadError:
        conversion = None
    if conversion is not None:
        outline = folder / "outline.gguf"
        conversion.file().write_outline(outline)
        assert Vocabulary.load(outline).tokenize("Once upon é", add_special=True, parse_special=False)


@pytest.mark.parametrize("version", CHECKPOINTS)
@given(changes=CHANGES, length=LENGTHS)
def test_a_damaged_checkpoint(tmp_path_factory, version, changes, length):
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "tokenizer.bin").write_bytes(llama2c_reference.tokenizer_bin(PIECES, SCORES))
    n_head = 44 if version != "version 0" else 28
    (folder / "model.bin").write_bytes(damage(CHECKPOINTS[version], changes, length, n_head))
    check(folder / "model.bin", folder)


@given(changes=CHANGES, length=LENGTHS)
def test_a_damaged_tokenizer(tmp_path_factory, changes, length):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = llama2c_reference.tokenizer_bin(PIECES, SCORES)
    (folder / "tokenizer.bin").write_bytes(damage(tokenizer, changes, length))
    (folder / "model.bin").write_bytes(CHECKPOINTS["version 1"])
    check(folder / "model.bin", folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.json", "merges.txt"])
@given(changes=CHANGES, length=LENGTHS)
def test_a_damaged_folder(tmp_path_factory, name, changes, length):
    folder = gpt2_reference.write_folder(tmp_path_factory.mktemp("gpt2"), *small_gpt2(width=20, n_layers=1))
    path = folder / name
    path.write_bytes(damage(path.read_bytes(), changes, length))
    check(folder, folder)
