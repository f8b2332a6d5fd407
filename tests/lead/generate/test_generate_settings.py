"""`lead generate` has the lead's options, and a text to continue."""

import io
from types import SimpleNamespace

import pytest

from lead.generate.generate_settings import GenerateSettings
from shared.errors import ConfigError


def settings(*arguments):
    return GenerateSettings.from_command_line(arguments)


def stdin(monkeypatch, data):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


@pytest.mark.parametrize("option", ["-i", "-p", "--prompt"])
def test_a_prompt_is_given_as_in_other_programs(option):
    assert settings(option, "Once upon a time").read_prompt() == "Once upon a time"
    assert settings().read_prompt() == ""  # the model begins


@pytest.mark.parametrize("arguments", [("-i", "-"), ("--prompt=-",), ("-f", "-"), ("--file", "-")])
def test_a_prompt_can_come_from_standard_input(monkeypatch, arguments):
    stdin(monkeypatch, "Hé\n".encode())
    assert settings(*arguments).read_prompt() == "Hé\n"


def test_a_prompt_can_come_from_a_file(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("Once\n")
    assert settings("--file", str(path)).read_prompt() == "Once\n"


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.txt: No such file"):
        settings("-f", str(tmp_path / "missing.txt")).read_prompt()


def test_a_file_that_is_no_text_is_an_error(monkeypatch):
    stdin(monkeypatch, b"\xff")
    with pytest.raises(ConfigError, match="standard input is not text in UTF-8"):
        settings("-f", "-").read_prompt()


def test_two_prompts_are_refused(capsys):
    with pytest.raises(SystemExit):
        settings("-i", "a", "-f", "b")
    assert "--file: cannot be combined with --prompt" in capsys.readouterr().err.replace("-f:", "--file:")


def test_options_of_the_lead_apply():
    given = settings("-n", "7", "--temp", "0", "--seed", "3", "--back", "builtin", "-t", "2")
    assert (given.sampling.n_predict, given.sampling.temperature, given.sampling.seed) == (7, 0, 3)
    assert (given.own_back.is_wanted, given.n_threads) == (True, 2)
    assert settings().sampling.n_predict == 256


def test_the_port_keys_and_certificates_of_a_lead_do_not_apply(monkeypatch):
    monkeypatch.setenv("LEAD_API_KEY", "hidden-key-of-the-lead")
    alone = settings("--host", "0.0.0.0", "--port", "80", "--announce", "--print", "all").alone()
    assert (alone.host, alone.port, alone.announce, alone.print) == ("127.0.0.1", 0, False, "none")
    assert not alone.security.has_keys
