import re

import pytest

from back.settings import BackSettings
from chat.settings import ChatSettings
from lab.measuring.bench_settings import BenchSettings
from lead.os_service.uninstall_program import UninstallSettings
from lead.settings.lead_settings import DoctorSettings, LeadSettings
from shared.settings.command_line import Dialect, OptionParser, Spelling

DIALECT = Dialect(
    spellings={
        "layers": Spelling(("-ngl", "--gpu-layers")),
        "unified": Spelling(constants={"-no-kvu": False}),
        "absent": Spelling(("--absent",)),
    },
    ignored={"-cb": 0, "--prio": 1, "--layers": 1},
    refused={"--mmproj": "only text is served"},
)


@pytest.fixture
def parser():
    parser = OptionParser(
        "thing", "Does a thing.", lambda: "thing 1.0", {"layers": "computing", "host": "address"}, DIALECT
    )
    parser.add_setting("--layers", dest="layers", metavar="int", help="how many")
    parser.add_setting("--api-key", dest="api_key", metavar="str", help="who may")
    parser.add_setting("--host", dest="host", metavar="str", help="where")
    parser.add_setting("--unified", dest="unified", action="store_true", help="whether")
    return parser


@pytest.mark.parametrize("option", ["-ngl", "--gpu-layers", "--layers"])
def test_each_spelling_sets_the_setting(parser, option):
    assert parser.parse([option, "7"]).layers == "7"


def test_a_negative_number_is_a_value(parser):
    assert parser.parse(["-ngl", "-1"]).layers == "-1"


def test_an_option_may_mean_a_fixed_value(parser):
    assert parser.parse(["-no-kvu"]).unified is False


def test_the_last_of_several_spellings_wins(parser):
    assert parser.parse(["-ngl", "7", "--gpu-layers", "8"]).layers == "8"


def test_options_without_effect_are_ignored(parser):
    assert parser.parse(["-cb", "--prio", "2", "-ngl", "3"]).layers == "3"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--mmproj a.gguf", "--mmproj: only text is served"),
        ("--absent 1", "unknown option --absent"),  # it has a spelling, and the program lacks the setting
        ("--gpu-layer 1", "unknown option --gpu-layer: did you mean --gpu-layers?"),
        ("--layers 7 foo", "'foo' is not an option. To load a model: thing --model foo"),
        ("-ngl 7 doctor", "doctor must be the first word: thing doctor [options]"),
        ("-ngl", "-ngl/--layers/--gpu-layers: expected one argument"),
    ],
)
def test_what_cannot_be_understood_is_explained_in_a_line(parser, complaint, arguments, said):
    error = complaint(parser.parse, arguments.split())
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--api-kay=hidden"], ["--api-kay", "hidden"], ["--api-key=sesame", "hidden"]]
)
def test_the_value_of_an_unknown_option_is_not_shown(parser, complaint, arguments):
    assert "hidden" not in complaint(parser.parse, arguments)


def test_the_spelling_that_was_used_is_known(parser):
    assert parser.given_as("layers", ["--host", "x", "-ngl=3"]) == "-ngl"


def test_an_option_that_was_not_given_has_no_spelling(parser):
    assert parser.given_as("layers", ["--host", "x"]) is None


def test_help_shows_all_spellings_with_one_value(parser):
    assert "-ngl, --layers, --gpu-layers N" in parser.format_help()


def test_help_does_not_show_ignored_and_refused_options(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse(["--help"])
    shown = capsys.readouterr().out
    assert "--prio" not in shown
    assert "--mmproj" not in shown


def test_the_version_is_shown(parser, capsys):
    with pytest.raises(SystemExit) as ended:
        parser.parse(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, "thing 1.0\n")


PROGRAMS = [LeadSettings, BackSettings, ChatSettings]


def parser_of(program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return program.sources().parser()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.program)
def test_the_help_of_a_program_fits_on_a_screen(program, monkeypatch):
    parser = parser_of(program, monkeypatch)
    shown = parser.short_help()
    assert len(shown.splitlines()) <= 70
    named = {line.strip() for line in shown.splitlines() if line.startswith("  -")}
    assert len(named) >= len(program.usual) - 1  # a question has no option
    assert parser.short_help().count("--help-all") == 1


@pytest.mark.parametrize("program", [*PROGRAMS, UninstallSettings], ids=lambda program: program.program)
def test_an_error_names_the_help_that_has_all_options(program, monkeypatch, capsys):
    parser = parser_of(program, monkeypatch)
    with pytest.raises(SystemExit):
        parser.parse(["--nothing-like-it"])
    (option,) = re.findall(r"\(.* (--help\S*) lists all options\)", capsys.readouterr().err)
    with pytest.raises(SystemExit):
        parser.parse([option])
    assert len(capsys.readouterr().out) > len(parser.format_help()) - 10


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.program)
def test_the_whole_help_has_all_options_and_no_types_of_python(program, monkeypatch):
    shown = parser_of(program, monkeypatch).format_help()
    options = [f"--{name.replace('_', '-')}" for name in program.options() if name != "question"]
    missing = [option for option in options if option not in shown]
    assert missing in ([], ["--pinned-certificate-file"])
    assert not re.search(r"tuple\[|JSON,|default: [(\[]|\\'", shown)


def test_every_usual_option_is_one():
    wrong = [(each.program, name) for each in PROGRAMS for name in each.usual if name not in each.options()]
    assert wrong == []


def test_help_on_a_topic_has_its_options_only(monkeypatch):
    shown = parser_of(LeadSettings, monkeypatch).help_on("Long")
    assert "--keep" in shown
    assert "--ctx-size" not in shown


def test_a_topic_that_is_none_is_answered_with_those_that_are(monkeypatch, complaint):
    assert "Topics: general; model;" in complaint(parser_of(LeadSettings, monkeypatch).help_on, "nothing")


@pytest.mark.parametrize(
    ("program", "own"),
    [(BenchSettings, "--repeats"), (BenchSettings, "  --json "), (DoctorSettings, "--help-all")],
)
def test_the_help_of_a_subcommand_does_not_repeat_the_program_s(program, own, monkeypatch):
    shown = parser_of(program, monkeypatch).short_help()
    assert own in shown
    assert "--ctx-size N" not in shown
