"""Settings come from the command line and CHAT_*. They are checked before anything happens."""

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from chat.settings import ChatSettings
from shared.pairing.joined_lead import JoinedLead

read = ChatSettings.from_command_line


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("attic:5555", "http://attic:5555"),
        ("http://attic:5555/", "http://attic:5555"),
        ("https://attic/llm/v1/", "https://attic/llm"),
        ("[::1]:5555", "http://[::1]:5555"),
    ],
)
def test_addresses_without_scheme_or_with_v1_are_accepted(given, url):
    assert read(["--lead", given]).lead == url


def test_sampling_parameters_are_options():
    settings = read(["--temperature", "0.2", "--seed", "7", "--max-tokens", "50"])
    assert settings.sampling.chosen == {"temperature": 0.2, "seed": 7, "max_tokens": 50}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--lead", "ftp://attic"], "--lead: write an address such as 192.168.1.20:5555"),
        (["--lead", "http://attic:port"], "--lead: write an address such as"),
        (["--max-tokens", "0"], "--max-tokens: must be at least 1 (got '0')"),
        (["--temperature", "-1"], "--temperature: must be at least 0"),
    ],
)
def test_a_wrong_value_is_explained(arguments, sentence, complaint):
    assert complaint(read, arguments).startswith(f"chat: {sentence}")


def test_help_shows_defaults_and_an_example(capsys):
    with pytest.raises(SystemExit):
        read(["--help-all"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "(default: http://127.0.0.1:5555)" in shown
    assert "| chat --lines --seed 1" in shown


def test_a_key_is_not_shown():
    assert "sesame" not in repr(read(["--api-key", "sesame"]))


def test_positional_arguments_are_the_question_and_json_is_short_for_an_output():
    settings = read(["--seed", "7", "--json", "Why", "so?"])
    assert (settings.question, settings.output) == (["Why", "so?"], "json")


NO_TEXT, REPLACED = "Gr\udcf6\udcdfe", "Gr\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}e"
"""Latin-1 as Python reads it from the command line, and from stdin."""


def test_arguments_and_variables_that_are_not_utf_8_are_read_like_stdin(monkeypatch):
    monkeypatch.setenv("CHAT_SYSTEM", NO_TEXT)
    settings = read(["--model", NO_TEXT, NO_TEXT, "\N{GRINNING FACE}"])
    assert settings.question == [REPLACED, "\N{GRINNING FACE}"]
    assert (settings.system, settings.model) == (REPLACED, REPLACED)


def test_the_lead_that_was_joined_is_asked_unless_one_is_named(monkeypatch):
    lead = JoinedLead("https://10.0.0.1:5556", SecretStr("its-key"), Path("certificate.pem"))
    monkeypatch.setattr(JoinedLead, "find", lambda *_: lead)
    joined = ChatSettings.from_command_line([]).joined()
    expected = (lead.url, "its-key", lead.certificate)
    assert (joined.lead, joined.read_key(), joined.pinned_certificate_file) == expected
    named = ChatSettings.from_command_line(["--lead", "gpu:5555"])
    assert named.joined() == named
    lead = replace(lead, url="https://10.0.0.2:5556")
    assert joined.located_again().lead == lead.url
