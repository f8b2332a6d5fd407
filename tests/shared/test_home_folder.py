import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.home_folder import ensure_home


def no_entry(uid):
    raise KeyError(uid)


@pytest.fixture
def nobody(monkeypatch):
    """This user is not in /etc/passwd."""
    monkeypatch.setattr("pwd.getpwuid", no_entry)


@pytest.mark.usefixtures("nobody")
def test_without_any_home_it_is_the_root(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    ensure_home()
    assert Path.home() == Path("/")


@pytest.mark.usefixtures("nobody")
def test_a_home_in_the_environment_is_kept(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    ensure_home()
    assert Path.home() == Path("/home/me")


def test_a_home_in_the_passwd_file_is_kept(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    ensure_home()
    assert "HOME" not in os.environ


@pytest.mark.parametrize(
    ("program", "arguments"), [("lead", ["cache"]), ("back", ["--check"]), ("chat", ["hi"])]
)
def test_each_program_sees_to_it(program, arguments):
    code = f"import pwd\npwd.getpwuid = {{}}.__getitem__\nfrom {program}.__main__ import main\nmain()"
    environment = {key: value for key, value in os.environ.items() if key != "HOME" and "XDG" not in key}
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in ended.stderr
