"""What `back service` adds to tests/shared/os_service: the lead that was joined."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from back.os_service import back_service as service
from back.os_service.back_service import main
from shared.errors import ConfigError
from shared.pairing.joined_lead import JoinedLead


@pytest.fixture
def given(monkeypatch):
    """The options of each service that is installed."""
    installed = []
    monkeypatch.setattr(service, "serve_as", lambda *arguments: installed.append(arguments[2]))
    return installed


def test_a_service_knows_the_lead_that_was_joined_and_not_the_code(given, monkeypatch):
    lead = JoinedLead("https://10.0.0.1:5556", SecretStr("its-key"), Path("/data/certificate.pem"))
    monkeypatch.setattr(JoinedLead, "find", lambda _role, _name, code: lead if code == "duo2bx" else None)
    main(["install", "--model", "small.gguf", "--join", "duo2bx"])
    (options,) = given
    assert "join" not in options
    assert (options["lead"], options["key"]) == (lead.url, "its-key")
    assert options["pinned_certificate_file"] == lead.certificate
    assert options["model"] == "small.gguf"


def test_a_code_that_does_not_work_is_a_sentence(given, monkeypatch):
    def find(*_):
        raise ConfigError("the code was used before")

    monkeypatch.setattr(JoinedLead, "find", find)
    with pytest.raises(SystemExit, match="back service: the code was used before"):
        main(["install", "--join", "duo2bx"])
    assert given == []


def test_without_one_the_options_are_as_given(given):
    main(["install", "--lead", "http://gpu:5555"])
    assert "pinned_certificate_file" not in given[0]
