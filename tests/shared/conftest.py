import pytest


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch, tmp_path):
    monkeypatch.setattr("shared.llama.remembered.user_cache_path", lambda _: tmp_path / "remembered")
