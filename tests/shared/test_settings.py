import pytest
from pydantic import Field

from shared.settings import ProgramSettings, program_config


class Settings(ProgramSettings):
    """Does a thing.

    thing --level 3
    """

    model_config = program_config("thing", {"level": "l"})

    level: int = Field(1, ge=0, description="how much")
    api_key: str | None = Field(None, pattern="^a+$")
    fast: bool = False


def test_a_default_stands_until_something_else_is_said():
    assert Settings.from_command_line([]).level == 1


def test_the_environment_goes_over_the_default(monkeypatch):
    monkeypatch.setenv("THING_LEVEL", "2")
    assert Settings.from_command_line([]).level == 2


def test_the_command_line_goes_over_the_environment(monkeypatch):
    monkeypatch.setenv("THING_LEVEL", "2")
    assert Settings.from_command_line(["--level", "3"]).level == 3


def test_an_empty_variable_is_no_variable(monkeypatch):
    monkeypatch.setenv("THING_LEVEL", "")
    assert Settings.from_command_line([]).level == 1


def test_short_options_and_plain_flags_work():
    settings = Settings.from_command_line(["-l", "4", "--fast"])
    assert (settings.level, settings.fast) == (4, True)


def test_a_wrong_value_ends_with_status_2_naming_option_and_value(capsys):
    with pytest.raises(SystemExit) as ended:
        Settings.from_command_line(["--level", "-1"])
    assert ended.value.code == 2
    assert "thing: --level: " in (error := capsys.readouterr().err)
    assert "'-1'" in error


def test_a_wrong_key_is_not_repeated(capsys):
    with pytest.raises(SystemExit):
        Settings.from_command_line(["--api-key", "bbb-secret"])
    assert "bbb-secret" not in capsys.readouterr().err


def test_an_unknown_option_ends_with_status_2(capsys):
    with pytest.raises(SystemExit) as ended:
        Settings.from_command_line(["--nonsense"])
    assert ended.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


def test_help_begins_with_the_docstring(capsys):
    with pytest.raises(SystemExit):
        Settings.from_command_line(["--help"])
    assert "Does a thing.\n\nthing --level 3" in capsys.readouterr().out
