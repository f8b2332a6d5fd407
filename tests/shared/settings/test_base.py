import os
from typing import Any

import pytest
from pydantic import Field, SecretStr, model_validator

from shared.settings.base import FileSettings
from shared.settings.command_line import Dialect, Spelling
from shared.settings.options import CommaList, OptionError, OptionGroup


class Paint(OptionGroup):
    color: str = "red"
    shine: int = 0

    @model_validator(mode="after")
    def _check_shine(self):
        if self.color == "black" and self.shine:
            raise OptionError("shine", "black does not shine")
        return self


class Settings(FileSettings):
    """Does a thing.

    thing --level 3
    """

    program = "thing"
    prefix = "THING_"
    dialect = Dialect(
        {
            "level": Spelling(("-l", "-lvl"), ("OTHER_ARG_LEVEL",)),
            "fast": Spelling(variables=("OTHER_ARG_FAST",)),
            "origins": Spelling(variables=("OTHER_ARG_ORIGINS",)),
        }
    )

    level: int = Field(1, ge=0, description="how much")
    api_key: str | None = Field(None, pattern="^a+$")
    fast: bool = False
    origins: CommaList = ()
    paint: Paint = Paint()

    @model_validator(mode="before")
    @classmethod
    def _check_speed(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("fast") and values.get("level") == "7":
            raise ValueError("7 is too much to be fast")
        return values


@pytest.fixture
def file(tmp_path):
    """Writes a settings file; returns its path as an argument."""

    def write(text):
        path = tmp_path / "thing.toml"
        path.write_text(text)
        return f"--config={path}"

    return write


@pytest.mark.parametrize(
    ("variables", "arguments", "level"),
    [
        ({}, "", 1),
        ({"THING_LEVEL": ""}, "", 1),
        ({}, "FILE", 6),
        ({"OTHER_ARG_LEVEL": "5"}, "FILE", 5),
        ({"THING_LEVEL": "2"}, "FILE", 2),
        ({"OTHER_ARG_LEVEL": "5", "THING_LEVEL": "2"}, "", 2),
        ({"OTHER_ARG_LEVEL": "5", "THING_LEVEL": "2"}, "FILE -lvl 3", 3),
    ],
)
def test_the_command_line_goes_over_our_variable_another_program_s_the_file_and_the_default(
    monkeypatch, file, variables, arguments, level
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given = arguments.replace("FILE", file("level = 6")).split()
    assert Settings.from_command_line(given).level == level


def test_short_options_and_plain_flags_work():
    settings = Settings.from_command_line(["-l", "4", "--fast"])
    assert (settings.level, settings.fast) == (4, True)


@pytest.mark.parametrize(("value", "fast"), [("enabled", True), ("off", False), ("1", True)])
def test_switches_accept_the_other_programs_words(monkeypatch, value, fast):
    monkeypatch.setenv("OTHER_ARG_FAST", value)
    assert Settings.from_command_line([]).fast is fast


def test_negative_variables_of_the_other_program_switch_off(monkeypatch, file):
    monkeypatch.setenv("OTHER_ARG_NO_FAST", "")
    assert Settings.from_command_line([file("fast = true")]).fast is False


def test_a_variable_may_name_the_file(monkeypatch, file):
    monkeypatch.setenv("THING_CONFIG", file("level = 6").removeprefix("--config="))
    assert Settings.from_command_line([]).level == 6


@pytest.mark.parametrize("key", ["api-key", "api_key"])
def test_keys_of_the_file_may_have_hyphens(file, key):
    assert Settings.from_command_line([file(f"{key} = 'aaa'")]).api_key == "aaa"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("levle = 6", "thing.toml: unknown option levle: did you mean level?\n"),
        ("config = 'b'", "unknown option config"),
        ("[thing]\nlevel = 6", "unknown option thing"),
        ("level = ", "thing.toml is not valid TOML: "),
        ("level = -2", "thing.toml: level: must be at least 0 (got -2)\n"),
    ],
)
def test_a_wrong_file_ends_with_status_2_and_a_line(file, complaint, text, message):
    error = complaint(Settings.from_command_line, [file(text)])
    assert message in error
    assert error.count("\n") == 1


def test_a_file_that_is_not_there_is_an_error(tmp_path, complaint):
    said = complaint(Settings.from_command_line, ["--config", str(tmp_path / "none.toml")])
    assert "none.toml: No such file" in said


@pytest.mark.parametrize(
    "arguments", [["--origins", "a,b"], ["--origins", "a", "--origins", "b"], ["--origins=a, b"]]
)
def test_a_list_is_repeated_or_separated_by_commas(arguments):
    assert Settings.from_command_line(arguments).origins == ("a", "b")


@pytest.mark.parametrize("variable", ["THING_ORIGINS", "OTHER_ARG_ORIGINS"])
def test_a_list_in_the_environment_has_commas(monkeypatch, variable):
    monkeypatch.setenv(variable, "a,b")
    assert Settings.from_command_line([]).origins == ("a", "b")


def test_a_list_in_the_file_is_a_list(file):
    assert Settings.from_command_line([file("origins = ['a', 'b']")]).origins == ("a", "b")


@pytest.mark.parametrize(
    ("variable", "option", "named"),
    [
        (None, "-lvl", "-lvl"),
        (None, "--level", "--level"),
        (None, "--shine", "--shine"),
        ("OTHER_ARG_LEVEL", None, "OTHER_ARG_LEVEL"),
        ("THING_LEVEL", None, "THING_LEVEL"),
    ],
)
def test_a_wrong_value_is_named_as_it_was_given(monkeypatch, complaint, variable, option, named):
    if variable:
        monkeypatch.setenv(variable, "much")
    said = complaint(Settings.from_command_line, [option, "much"] if option else [])
    assert said.startswith(f"thing: {named}: must be a whole number")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["--origins", os.fsdecode(b"m\xf6del")], "--origins: the value is not UTF-8"),
        (["--fast", "--level", "7", "--api-key", "aaa"], "7 is too much to be fast"),
        (["--color", "black", "--shine", "3"], "--shine: black does not shine"),
    ],
    ids=["no text", "an error of the whole, without the values", "an error of a group"],
)
def test_what_is_wrong_is_all_that_is_said(complaint, given, error):
    assert complaint(Settings.from_command_line, given) == f"thing: {error}\n"


def test_a_wrong_key_is_not_shown(complaint):
    assert "bbb-secret" not in complaint(Settings.from_command_line, ["--api-key", "bbb-secret"])


def test_help_begins_with_the_docstring(capsys):
    with pytest.raises(SystemExit):
        Settings.from_command_line(["--help"])
    assert "Does a thing.\n\nthing --level 3" in capsys.readouterr().out


def warnings(capsys):
    Settings.from_command_line([])
    return capsys.readouterr().err


@pytest.mark.parametrize("variable", ["THING_LEVLE", "THING_API_KAY", "thing_orgins"])
def test_the_warning_of_a_misspelled_variable_does_not_show_its_value(variable, monkeypatch, capsys):
    monkeypatch.setenv(variable, "hidden")
    said = warnings(capsys)
    assert said.startswith(f"thing: {variable} is ignored: did you mean THING_")
    assert "hidden" not in said


@pytest.mark.parametrize(
    "variable",
    ["THING_LEVEL", "thing_level", "THING_SERVICE_HOST", "THING_", "OTHER_ARG_LEVEL", "SOMETHING_LEVLE"],
)
def test_other_variables_are_not_warned_of(variable, monkeypatch, capsys):
    monkeypatch.setenv(variable, "3")
    assert warnings(capsys) == ""


def test_an_empty_misspelled_variable_is_not_warned_of(monkeypatch, capsys):
    monkeypatch.setenv("THING_LEVLE", "")
    assert warnings(capsys) == ""


@pytest.mark.parametrize("where", ["option", "variable", "file"])
def test_an_option_of_a_group_is_spelled_like_any_other(where, monkeypatch, file):
    arguments = {"option": ["--color", "blue"], "variable": [], "file": [file("color = 'blue'")]}[where]
    if where == "variable":
        monkeypatch.setenv("THING_COLOR", "blue")
    assert Settings.from_command_line(arguments).paint == Paint(color="blue")


def test_a_program_may_have_other_defaults_than_its_fields(file, capsys):
    class Other(Settings):
        defaults = {"color": "green", "level": 9}  # noqa: RUF012 - read only

    given = Other.from_command_line([file("level = 4")])
    assert (given.paint.color, given.level) == ("green", 4)
    with pytest.raises(SystemExit):
        Other.from_command_line(["--help"])
    assert "(default: green)" in capsys.readouterr().out


def test_what_was_given_is_known_wherever_it_came_from(file, monkeypatch):
    monkeypatch.setenv("THING_LEVEL", "2")
    settings = Settings.from_command_line([file("shine = 3"), "--origins", "a,b", "--api-key", "aa"])
    given = settings.given()
    assert given.pop("config").endswith("thing.toml")
    assert given == {"level": 2, "shine": 3, "origins": ["a", "b"], "api_key": "aa"}
    assert Settings.from_options(**given).paint.shine == 3


def test_a_secret_is_given_as_it_is():
    class Secret(Settings):
        """Settings with secrets."""

        token: SecretStr = SecretStr("")
        tokens: list[SecretStr] = []  # noqa: RUF012 - of a pydantic model

    assert Secret.from_options(token="x", tokens=["y"]).given() == {"token": "x", "tokens": ["y"]}  # noqa: S106 - of the test
