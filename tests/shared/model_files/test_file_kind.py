import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGUFWriter
from gguf.scripts.gguf_new_metadata import copy_with_new_metadata
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ModelLoadError
from shared.llama.span import Span
from shared.model_files.builtin import builtin_target
from shared.model_files.file_kind import check_kind, parts_of, pooling_of, read_beginning, read_name, size_of
from shared.settings.model_options import ModelOptions
from tests.tiny_models import write_and_close


def write(path, architecture, kind=None, tags=()):
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    if tags:
        writer.add_tags(list(tags))
    if kind:
        writer.add_type(kind)
    write_and_close(writer)
    return path


KINDS = {
    "a LoRA adapter": ("llama", "adapter", r"a LoRA adapter. Set --model to its base model"),
    "a projector": ("clip", "mmproj", "the projector .* Set --model to the model itself"),
    "a projector without a type": ("clip", None, "the projector"),
    "an importance matrix": ("llama", "imatrix", "an importance matrix .* Set --model to the model"),
    "a control vector": ("controlvector", None, "an importance matrix or a control vector of a model. Set"),
    "EAGLE-3": ("eagle3", "model", "a drafter that reads hidden states .* use a small text model"),
    "DFlash": ("dflash", "model", "a drafter that reads hidden states"),
    "Gemma's assistant": ("gemma4-assistant", None, "a drafter that reads hidden states"),
    "a vocoder": (
        "wavtokenizer-dec",
        None,
        "a part of a speech synthesizer: use a decoder-only text model",
    ),
    "a speech model": ("qwen3tts", None, "a part of a speech"),
    "BERT": ("bert", None, "an encoder, .*: use a decoder-only text model"),
    "ModernBERT": ("modern-bert", "model", "an encoder"),
    "a mixture of BERTs": ("nomic-bert-moe", None, "an encoder"),
    "an embedding Gemma": ("gemma-embedding", None, "an encoder"),
    "T5": ("t5", None, "an encoder-decoder model: use a decoder-only text model"),
    "T5's encoder": ("t5encoder", None, "an encoder"),
    "a diffusion model": ("llada-moe", None, "a diffusion model"),
}


@pytest.mark.parametrize(("architecture", "kind", "message"), KINDS.values(), ids=KINDS)
def test_a_file_of_another_kind_is_refused(tmp_path, architecture, kind, message):
    path = write(tmp_path / "model.gguf", architecture, kind)
    with pytest.raises(ModelLoadError, match=f"model.gguf cannot be used: it is {message}"):
        check_kind(path)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "pangu-embedded", "mamba", "gemma4", "unknown"])
def test_a_text_model_is_not_refused(tmp_path, architecture):
    check_kind(write(tmp_path / "model.gguf", architecture, "model"))


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(ModelLoadError, match="Rename the file"):
        check_kind(Path(os.fsdecode(b"m\xf6del.gguf")))


def test_the_type_may_come_after_other_metadata(tmp_path):
    path = write(tmp_path / "model.gguf", "llama", "adapter", tags=["a", "b"])
    with pytest.raises(ModelLoadError, match="a LoRA adapter"):
        check_kind(path)


@pytest.mark.parametrize("data", [None, b"", b"GGUF", b"GGML" + bytes(100), b"GGUF" + bytes(100)])
def test_what_is_no_gguf_is_left_to_others(tmp_path, data):
    path = tmp_path / "model.gguf"
    if data is not None:
        path.write_bytes(data)
    check_kind(path)


NUMBERS = st.sampled_from([0, 1, 8, 9, 12, 13, 2**31, 2**62, 2**64 - 1])


LENGTHS = NUMBERS.map(lambda n: struct.pack("<Q", n))
KINDS_OF_VALUES = st.integers(0, 13).map(lambda kind: struct.pack("<I", kind))
KEYS = st.just(struct.pack("<Q", 1) + b"a")
ARRAYS = st.tuples(KEYS, st.just(struct.pack("<I", 9)), KINDS_OF_VALUES, LENGTHS).map(b"".join)


@given(st.lists(st.one_of(st.binary(max_size=9), LENGTHS, KEYS, KINDS_OF_VALUES, ARRAYS)))
def test_no_beginning_is_too_much(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("any") / "model.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**64 - 1) + b"".join(parts))
    assert all(isinstance(value, str) for value in read_beginning(path).values())


@pytest.fixture
def files(tmp_path):
    """Makes empty files; returns the path of the first."""

    def files(*names):
        for name in names:
            (tmp_path / name).touch()
        return tmp_path / names[0]

    return files


@pytest.mark.parametrize("name", ["big.gguf", "big-1-of-3.gguf", "big-00001-of-00003.bin", "-of-.gguf"])
def test_other_names_are_of_whole_models(name):
    assert read_name(name) is None


def test_a_whole_model_is_its_only_part(files):
    path = files("big.gguf")
    assert parts_of(path) == [path]


def test_the_first_part_finds_the_others(files):
    path = files("big-00001-of-00002.gguf", "big-00002-of-00002.gguf")
    assert parts_of(path) == [path, path.with_name("big-00002-of-00002.gguf")]


def test_the_size_is_that_of_all_parts(files):
    path = files("big-00001-of-00002.gguf", "big-00002-of-00002.gguf")
    path.write_bytes(b"GGUF")
    path.with_name("big-00002-of-00002.gguf").write_bytes(b"more")
    assert size_of(path) == 8


def test_another_part_is_answered_with_the_first(files):
    path = files("big-00002-of-00002.gguf", "big-00001-of-00002.gguf")
    with pytest.raises(
        ModelLoadError, match=r"is part 2 of 2. Use the first part: .*/big-00001-of-00002\.gguf"
    ):
        parts_of(path)


@pytest.mark.parametrize("name", ["big.gguf", "big-00001-of-00003.gguf"])
def test_a_model_of_which_nothing_is_there_is_not_there(tmp_path, name):
    with pytest.raises(ModelLoadError, match="does not exist"):
        parts_of(tmp_path / name)


@pytest.fixture(scope="module")
def split_model(tmp_path_factory):
    """The shipped target in three files, by the path of the first."""
    folder = tmp_path_factory.mktemp("split")
    writer = gguf.GGUFWriter(folder / "toy.gguf", "llama", split_max_tensors=20)
    copy_with_new_metadata(gguf.GGUFReader(builtin_target()), writer, {}, [])
    path = folder / "toy-00001-of-00003.gguf"
    assert len(parts_of(path)) == len(list(folder.iterdir())) == 3
    return path


def test_a_model_in_parts_computes_what_it_does_in_one(opened, split_model):
    options = ModelOptions(ctx_size=64, parallel=1, batch_size=32, threads=1)
    models = (opened(path, options) for path in (split_model, builtin_target()))
    assert np.array_equal(*(model.decode([Span(0, 0, [30, 40, 50], 1)])[0] for model in models))


@pytest.mark.parametrize(
    ("architecture", "pooling", "expected"),
    [
        *(("bert", 1, 1), ("bert", None, 0), ("qwen3", 3, 3)),
        *(("qwen3", 4, 4), ("qwen3", None, None), ("qwen3", 0, None)),
    ],
)
def test_a_file_says_how_it_makes_vectors(tmp_path, architecture, pooling, expected):
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, architecture)
    if pooling is not None:
        writer.add_uint32(f"{architecture}.pooling_type", pooling)
    write_and_close(writer)
    assert pooling_of(path) == expected


def test_no_file_makes_no_vectors(tmp_path):
    assert pooling_of(tmp_path / "none.gguf") is None
