"""How processes of ours are started: from one place."""

import ast
import sys
from pathlib import Path

from shared.python_child import child_command, python_command

ROOT = Path(__file__).parent.parent.parent
PLACES = {
    "shared/python_child.py",
    "shared/service/service_program.py",  # in the folder of which the programs are
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
