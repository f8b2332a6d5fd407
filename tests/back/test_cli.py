"""The program `back`: its exit status, and that --help imports nothing slow."""

import sys

import pytest

from back import cli
from shared.errors import ConfigError
from tests.python_runs import run_python


def run(monkeypatch, *arguments, error=None):
    """The exit status of `back` with these arguments, if drafting ends with `error`."""

    def draft(_settings):
        if error:
            raise error

    monkeypatch.setattr("back.program.run", draft)
    monkeypatch.setattr(cli, "configure_logging", lambda *_, **__: None)
    monkeypatch.setattr(sys, "argv", ["back", *arguments])
    try:
        cli.main()
    except SystemExit as exit_:
        return exit_.code
    return 0


@pytest.mark.parametrize(("error", "status"), [(None, 0), (ConfigError("no"), 1), (OSError("gone"), 3)])
def test_the_exit_status_says_whether_a_restart_may_help(monkeypatch, error, status):
    assert run(monkeypatch, "--lead", "http://127.0.0.1:1", error=error) == status


def test_wrong_options_are_told_from_both(monkeypatch, capsys):
    assert run(monkeypatch, "--no-such-option") == 2
    assert "--no-such-option" in capsys.readouterr().err


def test_doctor_has_help_of_its_own(monkeypatch, capsys):
    assert run(monkeypatch, "doctor", "--help") == 0
    assert capsys.readouterr().out.startswith("usage: back doctor [options]\n\nFind out why")


def test_help_imports_neither_numpy_nor_llama():
    program = (
        "import sys; sys.argv = ['back', '--help']\n"
        "try:\n    import back.cli; back.cli.main()\n"
        "except SystemExit:\n    print({'numpy', 'llama_cpp'} & sys.modules.keys(), file=sys.stderr)"
    )
    assert run_python("-c", program, check=True).stderr == "set()\n"
