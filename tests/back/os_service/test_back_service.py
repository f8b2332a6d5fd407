"""The part of `back service` that tests/shared/os_service does not cover: the lead that was joined."""

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


LEAD = JoinedLead("https://10.0.0.1:5556", SecretStr("its-key"), Path("/data/certificate.pem"))


@pytest.fixture
def joined(given, monkeypatch):
    """The options of a service that is installed with a code."""
    monkeypatch.setattr(JoinedLead, "find", lambda _role, _name, code: LEAD if code == "duo3bx" else None)

    def joined(*more):
        main(["install", "--model", "small.gguf", "--join", "duo3bx", *more])
        return given[-1]

    return joined


def test_a_service_of_the_system_knows_the_lead_that_was_joined_and_not_the_code(joined):
    options = joined("--system")
    assert "join" not in options
    assert (options["lead"], options["key"]) == (LEAD.url, "its-key")
    assert options["pinned_certificate_file"] == LEAD.certificate
    assert options["model"] == "small.gguf"


def test_the_users_own_finds_it_by_itself_wherever_it_is(joined):
    assert not {"join", "lead", "key", "pinned_certificate_file"} & set(joined())


def test_a_code_that_does_not_work_is_a_sentence(given, monkeypatch):
    def find(*_):
        raise ConfigError("the code was used before")

    monkeypatch.setattr(JoinedLead, "find", find)
    with pytest.raises(SystemExit, match="back service: the code was used before"):
        main(["install", "--join", "duo3bx"])
    assert given == []


def test_without_one_the_options_are_as_given(given):
    main(["install", "--lead", "http://gpu:5555"])
    assert "pinned_certificate_file" not in given[0]
