"""Drafts of a model with another tokenizer, beside simpler ways."""

import pytest

from bench import acceptance, translated_acceptance
from shared.translation import stored_pair
from tests.shuffled_model import write_shuffled

PROMPT = "<|im_start|>user\nTell me a story about a fox.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_pair, "user_cache_path", lambda _name: tmp_path / "cache")


def test_nothing_is_lost_where_only_the_ids_differ(tmp_path):
    path = write_shuffled(tmp_path / "shuffled.gguf")
    rows = list(translated_acceptance.measure(path, [PROMPT], n_seeds=1, n_tokens=16))
    assert [row["temperature"] for row in rows] == [0.0, 0.8, 1.0]
    for row in rows:
        assert row["n_positions"] == 16
        assert row["translated"] == row["same_tokenizer"] == row["common_tokens"] > 0.4


def test_files_are_compared_with_the_shipped_draft_model(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(translated_acceptance, "TEMPERATURES", (0.0,))
    path = write_shuffled(tmp_path / "shuffled.gguf")
    acceptance.main([str(path), "--tokens", "2"])
    assert "common tokens" in capsys.readouterr().out
