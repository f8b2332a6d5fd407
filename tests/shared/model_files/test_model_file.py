"""A path that a person names becomes a file that llama.cpp loads."""

import pytest

from shared.errors import ModelLoadError
from shared.model_files.builtin import builtin_draft
from shared.model_files.model_file import loadable, pending_conversion


def test_a_gguf_is_used_as_it_is():
    assert loadable(builtin_draft()) == builtin_draft()
    assert pending_conversion(builtin_draft()) is None


def test_a_checkpoint_is_converted_once(checkpoint):
    assert pending_conversion(checkpoint).path == checkpoint
    path = loadable(checkpoint)
    assert path.read_bytes()[:4] == b"GGUF"
    assert pending_conversion(checkpoint) is None
    assert loadable(checkpoint) == path


def test_the_progress_is_shown(checkpoint, capsys, monkeypatch):
    monkeypatch.setattr("shared.progress.APPEARS_AFTER_SECONDS", 0.0)  # a fast machine shows none
    loadable(checkpoint)
    assert "converting stories" in capsys.readouterr().err


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ModelLoadError, match="does not exist"):
        loadable(tmp_path / "missing.gguf")


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(
        ModelLoadError,
        match=r"is a folder. Choose a GGUF file in it, or a folder with GPT-2 \(config.json\)$",
    ):
        loadable(tmp_path)


def test_a_folder_with_models_names_the_option_that_serves_them(tmp_path):
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ModelLoadError, match=f"`lead --models-dir {tmp_path}` serves all models in it"):
        loadable(tmp_path)
