"""Lists of models show what each model is for, even if its file is damaged."""

from shared.model_files.file_facts import size_if_known, task_of
from tests.minilm import tiny_bert


def test_a_file_says_what_its_model_is_for(tmp_path, tiny_model):
    assert task_of(tiny_model("llama")) is None
    assert task_of(tiny_bert(tmp_path / "a.gguf", ["a"])) == "embedding"
    assert task_of(tiny_bert(tmp_path / "b.gguf", ["a"], ranks=True)) == "rerank"
    assert task_of(tmp_path / "none.gguf") is None


def test_a_file_that_is_away_has_no_size(tmp_path):
    path = tmp_path / "a.gguf"
    assert (size_if_known(None), size_if_known(path)) == (0, 0)
    path.write_bytes(b"12345")
    assert size_if_known(path) == 5
