"""How processes of ours are started: from one place."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.python_child import ChildProcess, child_command, program_command, python_command

ROOT = Path(__file__).parent.parent.parent
PLACES = {
    "shared/python_child.py",
    "shared/os_service/service_program.py",  # in the folder of which the programs are
}


def test_modules_are_never_looked_for_in_the_working_directory():
    assert python_command("back", "--check") == [sys.executable, "-P", "-m", "back", "--check"]
    assert child_command("back")[:4] == [sys.executable, "-P", "-m", "shared.python_child"]


def test_no_other_code_starts_python_by_itself():
    users = {
        path.relative_to(ROOT).as_posix()
        for package in ("lead", "back", "chat", "fleet", "shared", "bench")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"executable", "_base_executable"}
    }
    assert users == PLACES


@pytest.mark.parametrize(
    ("script", "seconds", "status"),
    [
        ("echo up; kill -STOP $$; sleep 600", 60.0, -signal.SIGTERM),
        ("trap '' TERM; echo up; sleep 600 & wait; wait", 0.01, -signal.SIGKILL),
    ],
    ids=["stopped", "deaf"],
)
def test_a_child_is_told_to_end_and_killed_if_it_does_not(script, seconds, status):
    with ChildProcess(program_command("sh", "-c", script), stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"up\n"
        child.tell_to_end()
        assert child.end_within(seconds) == status
