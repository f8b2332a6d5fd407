import pytest


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch):
    for name in ("CHAT_LEAD", "CHAT_SEED", "CHAT_API_KEY", "CHAT_TEMPERATURE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
