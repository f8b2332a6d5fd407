"""All processes of this project are started from one place."""

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


STARTS = {"ProcessPoolExecutor", "fork", "os.fork", "os.posix_spawn", "subprocess.Popen", "subprocess.run"}
STARTING = {
    "shared/python_child.py": {"subprocess.Popen"},
    "shared/fork_server.py": {"fork", "os.fork"},
    "shared/limited_call.py": {"fork"},
    "shared/os_service/service_program.py": {"subprocess.run"},  # waits until it has ended
    "lab/planning/pinned_process.py": {"ProcessPoolExecutor"},
    "lab/parts/peer.py": {"subprocess.run"},  # as above
}


def started_by(path):
    """The names of `STARTS` that a source file calls or inherits from."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    used = [node.func for node in nodes if isinstance(node, ast.Call)]
    used += [base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases]
    return STARTS & {ast.unparse(each).partition("[")[0] for each in used}


def test_processes_are_started_only_where_they_end_with_their_parent():
    found = {
        path.relative_to(ROOT).as_posix(): started_by(path)
        for package in ("lead", "back", "chat", "fleet", "shared", "lab", "bench")
        for path in (ROOT / package).rglob("*.py")
    }
    assert {path: starts for path, starts in found.items() if starts} == STARTING


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
        assert child.stop(seconds) == status
