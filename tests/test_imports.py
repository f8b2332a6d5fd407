"""Who may import whom: checked on the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = {"lead", "back", "chat"}
PURE = [
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "lead/engine/speculation").glob("*.py"))),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "lead/engine/drafters").glob("*.py"))),
    "lead/engine/slots.py",
    "lead/engine/scheduler.py",
    "lead/engine/slot.py",
    "lead/engine/verify.py",
    "back/drafter.py",
    "shared/slot_cache.py",
]


def imported(path):
    """Every module that a source file imports, in full."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
    return names


def sources(package):
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_programs_do_not_import_each_other(program):
    others = PROGRAMS - {program}
    for path in sources(program):
        assert not {name.split(".")[0] for name in imported(path)} & (others | {"bench", "tests"}), path


def test_shared_imports_no_program():
    for path in sources("shared"):
        assert not {name.split(".")[0] for name in imported(path)} & (PROGRAMS | {"bench", "tests"}), path


def test_only_one_package_imports_llama_cpp():
    users = {
        path.relative_to(ROOT).parent.as_posix()
        for package in [*PROGRAMS, "shared", "bench"]
        for path in sources(package)
        if any(name.split(".")[0] == "llama_cpp" for name in imported(path))
    }
    assert users == {"shared/llama"}


@pytest.mark.parametrize("path", PURE)
def test_the_core_knows_no_clock_no_loop_and_no_native_code(path):
    forbidden = {"asyncio", "time", "random", "socket", "threading", "llama_cpp", "secrets"}
    assert not {name.split(".")[0] for name in imported(ROOT / path)} & forbidden


def test_chat_loads_neither_numpy_nor_llama():
    code = "import sys, chat.program; print(sorted({'numpy', 'llama_cpp'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


def test_the_shared_package_is_empty_itself():
    assert (ROOT / "shared" / "__init__.py").read_text() == ""
