import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.program_start import ensure_home, import_program
from tests.python_runs import run_python

PROGRAM = """
import os, subprocess, sys
from shared.program_start import open_closed_streams

open_closed_streams()
with open(os.devnull) as next_file:
    assert next_file.fileno() > 2, next_file
assert sys.stdin.read() == ""
print("a result", flush=True)
print("a message", file=sys.stderr, flush=True)
child = "import sys; assert None not in (sys.stdin, sys.stdout, sys.stderr)"
subprocess.run([sys.executable, "-c", child], check=True)
"""


@pytest.mark.parametrize(
    "closed", ["", "<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
)
def test_a_program_that_is_started_without_some_of_them_has_all(closed):
    shell = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", PROGRAM]
    ended = subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        0,
        "" if ">&-" in closed.replace("2>&-", "") else "a result\n",
        "" if "2>&-" in closed else "a message\n",
    )


@pytest.mark.parametrize("program", ["lead", "back", "chat"])
def test_each_program_sees_to_its_streams(program):
    shell = ["sh", "-c", '"$@" <&- >&-', "sh", sys.executable, "-m", program, "--version"]
    ended = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def no_entry(uid):
    raise KeyError(uid)


@pytest.fixture
def nobody(monkeypatch):
    """This user is not in /etc/passwd."""
    monkeypatch.setattr("pwd.getpwuid", no_entry)


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize(("variables", "home"), [({}, "/"), ({"HOME": "/home/me"}, "/home/me")])
def test_the_home_is_that_of_the_environment_or_the_root(monkeypatch, variables, home):
    monkeypatch.delenv("HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ensure_home()
    assert Path.home() == Path(home)


def test_a_home_in_the_passwd_file_is_kept(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    ensure_home()
    assert "HOME" not in os.environ


@pytest.mark.parametrize(
    ("program", "arguments"), [("lead", ["cache"]), ("back", ["--check"]), ("chat", ["hi"])]
)
def test_each_program_sees_to_a_home(program, arguments):
    code = f"import pwd\npwd.getpwuid = {{}}.__getitem__\nfrom {program}.__main__ import main\nmain()"
    environment = {key: value for key, value in os.environ.items() if key != "HOME" and "XDG" not in key}
    assert "Traceback" not in run_python("-c", code, *arguments, env=environment).stderr


@pytest.mark.parametrize("fails", [False, True])
def test_garbage_is_looked_for_after_the_import_but_not_before(tmp_path, monkeypatch, capsys, fails):
    program = tmp_path / f"program_that_fails_{fails}.py"
    program.write_text(f"import gc\nprint(gc.isenabled())\nassert not {fails}")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert import_program(program.stem).gc is gc
    except AssertionError:
        assert fails
    assert (capsys.readouterr().out, gc.isenabled()) == ("False\n", True)
