import pytest

from shared.errors import ConfigError
from shared.llama.gguf_metadata import tensor_names, write_vocabulary_file
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_draft, builtin_target


def test_the_vocabulary_is_the_same_and_the_weights_are_gone(tmp_path):
    path = tmp_path / "vocabulary.gguf"
    write_vocabulary_file(builtin_target(), path)
    whole, alone = Vocabulary.load(builtin_target()), Vocabulary.load(path)
    assert alone.identify() == whole.identify()
    text = "Once upon a time: 世界"
    assert alone.tokenize(text, add_special=True, parse_special=False) == whole.tokenize(
        text, add_special=True, parse_special=False
    )
    assert path.stat().st_size < 0.05 * builtin_target().stat().st_size


def test_a_file_that_is_no_gguf_is_an_error(tmp_path):
    (tmp_path / "junk").write_bytes(bytes(100))
    with pytest.raises(ConfigError, match="cannot be read"):
        write_vocabulary_file(tmp_path / "junk", tmp_path / "vocabulary.gguf")


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        write_vocabulary_file(builtin_target(), tmp_path / "missing" / "vocabulary.gguf")


def test_the_names_are_in_the_order_of_the_file():
    names = tensor_names(builtin_draft())
    assert names[0] == "token_embd.weight"
    assert "blk.0.attn_q.weight" in names


def test_a_file_that_is_no_gguf_has_none(tmp_path):
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    assert tensor_names(path) == []
