"""What a machine keeps of the lead that it joined; tests/lead/pairing/test_routes.py joins."""

import socket

import pytest

from shared.errors import ConfigError
from shared.pairing.joined_lead import JoinedLead


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "llama-duo" / "joined" / "back"
    folder.mkdir(parents=True)
    return folder


def test_of_several_addresses_the_first_that_answers_is_used(folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = free.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = listener.getsockname()[1]
        (folder / "lead.json").write_text(
            f'{{"addresses": ["127.0.0.1:{nobody}", "127.0.0.1:{here}"], "key": "k"}}'
        )
        assert JoinedLead.find("back", "desk", None).url == f"https://127.0.0.1:{here}"
    assert JoinedLead.find("back", "desk", None).url == f"https://127.0.0.1:{nobody}", "it may come back"


@pytest.mark.parametrize(
    "content", ["", "{}", '{"addresses": 5, "key": "k"}', '{"addresses": [], "key": "k"}']
)
def test_a_damaged_file_is_a_sentence(folder, content):
    (folder / "lead.json").write_text(content)
    with pytest.raises(ConfigError, match="join it again"):
        JoinedLead.find("back", "desk", None)
