import os
import shutil

import pytest

from shared.convert.converted_file import converted, read_conversion
from shared.errors import ModelLoadError
from shared.model_files.builtin import builtin_draft
from tests.shared.convert.conftest import small_llama
from tests.shared.convert.llama2c_reference import version_0


def test_a_gguf_is_not_converted(tmp_path):
    assert read_conversion(builtin_draft()) is None
    renamed = tmp_path / "model.bin"
    renamed.write_bytes(builtin_draft().read_bytes())
    assert read_conversion(renamed) is None


def test_both_formats_are_recognized(checkpoint, gpt2_folder):
    assert read_conversion(checkpoint).kind == "a llama2.c checkpoint of version 1"
    assert read_conversion(gpt2_folder).kind == "GPT-2 in a Hugging Face folder"


def test_a_checkpoint_with_a_magic_may_have_any_name(checkpoint):
    assert read_conversion(checkpoint.rename(checkpoint.with_name("stories15M")))


@pytest.mark.usefixtures("tokenizer")
def test_a_checkpoint_without_a_magic_is_called_bin(tmp_path):
    data = version_0(small_llama())
    for name in ("model.bin", "model.dat"):
        (tmp_path / name).write_bytes(data)
    assert read_conversion(tmp_path / "model.bin").kind == "a llama2.c checkpoint of version 0"
    with pytest.raises(ModelLoadError, match="is not a GGUF file"):
        read_conversion(tmp_path / "model.dat")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("model.safetensors", b'12345678{"', "for GPT-2, set --model to the folder with config.json"),
        ("pytorch_model.bin", b"PK\x03\x04 and more", "or a PyTorch file"),
        ("tokenizer.bin", b"\x07\0\0\0", "is not a llama2.c checkpoint"),
        ("model.bin", b"some text that is long enough for a header", "is not a llama2.c checkpoint"),
    ],
)
def test_other_files_are_refused_with_advice(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match=message):
        read_conversion(path)


@pytest.mark.parametrize("which", ["checkpoint", "tokenizer"])
def test_a_changed_source_is_converted_anew(checkpoint, tokenizer, which):
    before = converted(read_conversion(checkpoint))
    changed = {"checkpoint": checkpoint, "tokenizer": tokenizer}[which]
    state = changed.stat()
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    after = converted(read_conversion(checkpoint))
    assert after.is_file()
    assert not before.exists()


def test_other_sources_keep_theirs(checkpoint, gpt2_folder):
    first, second = (converted(read_conversion(source)) for source in (checkpoint, gpt2_folder))
    assert first.is_file()
    assert second.name == "gpt2.gguf"


def test_a_copy_with_the_same_name_is_another_source(checkpoint, tokenizer, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in (checkpoint, tokenizer):
        shutil.copy2(path, folder)
    copy = converted(read_conversion(folder / checkpoint.name))
    assert copy != converted(read_conversion(checkpoint))
