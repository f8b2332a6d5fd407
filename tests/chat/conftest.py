import pytest


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    for name in ("CHAT_LEAD", "CHAT_SEED", "CHAT_API_KEY", "CHAT_TEMPERATURE", "NO_COLOR", "CHAT_QUESTION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _nothing_of_ones_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
