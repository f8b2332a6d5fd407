"""Files that are no text models are refused in a sentence that says what is needed."""

import struct

import pytest
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ModelLoadError
from shared.models.builtin import builtin_draft
from shared.models.file_kind import check_kind, read_beginning


def write(path, architecture, kind=None, tags=()):
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    if tags:
        writer.add_tags(list(tags))
    if kind:
        writer.add_type(kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


KINDS = {
    "a LoRA adapter": ("llama", "adapter", r"an adapter \(LoRA\) .*: merge it"),
    "a projector": ("clip", "mmproj", "the projector .*: name the model itself"),
    "a projector without a type": ("clip", None, "the projector"),
    "an importance matrix": ("llama", "imatrix", "no model .*: name that model"),
    "a control vector": ("controlvector", None, "no model .*: name that model"),
    "EAGLE-3": ("eagle3", "model", "a drafter that reads hidden states .* use a small text model"),
    "DFlash": ("dflash", "model", "a drafter that reads hidden states"),
    "Gemma's assistant": ("gemma4-assistant", None, "a drafter that reads hidden states"),
    "a vocoder": (
        "wavtokenizer-dec",
        None,
        "a part of a speech synthesizer: a decoder-only text model is needed",
    ),
    "a speech model": ("qwen3tts", None, "a part of a speech"),
    "BERT": ("bert", None, "an encoder, .*: a decoder-only text model is needed"),
    "ModernBERT": ("modern-bert", "model", "an encoder"),
    "a mixture of BERTs": ("nomic-bert-moe", None, "an encoder"),
    "an embedding Gemma": ("gemma-embedding", None, "an encoder"),
    "T5": ("t5", None, "an encoder-decoder model: a decoder-only text model is needed"),
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


def test_the_shipped_models_are_not_refused():
    check_kind(builtin_draft())


def test_the_type_may_come_after_other_metadata(tmp_path):
    path = write(tmp_path / "model.gguf", "llama", "adapter", tags=["a", "b"])
    with pytest.raises(ModelLoadError, match="an adapter"):
        check_kind(path)


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGML" + bytes(100), b"GGUF" + bytes(100)])
def test_what_is_no_gguf_is_left_to_others(tmp_path, data):
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    check_kind(path)


def test_a_missing_file_is_left_to_others(tmp_path):
    check_kind(tmp_path / "missing.gguf")


NUMBERS = st.sampled_from([0, 1, 8, 9, 12, 13, 2**31, 2**62, 2**64 - 1])


@given(st.lists(st.one_of(st.binary(max_size=9), NUMBERS.map(lambda n: struct.pack("<Q", n)))))
def test_no_beginning_is_too_much(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("any") / "model.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**64 - 1) + b"".join(parts))
    assert all(isinstance(value, str) for value in read_beginning(path).values())
