"""The imports that each module may have, checked on the source."""

import ast
import functools
from pathlib import Path

import pytest

from tests.python_runs import run_python

ROOT = Path(__file__).parent.parent
PROGRAMS = {"lead", "back", "chat", "fleet"}
CORE = [
    "lead/engine/scheduler.py",
    "lead/engine/speculation/*.py",
    "lead/engine/drafters/*.py",
    "shared/drafting/drafter.py",
    "shared/sampling/constrained.py",
    "shared/sampling/sampler.py",
]
"""The modules that decide about tokens. They may import only modules that obey the same rule."""
FORBIDDEN_IN_LOOP = {"argparse", "asyncio", "os", "pathlib", "socket", "tempfile", "llama_cpp"}
FORBIDDEN_IN_CORE = {"asyncio", "time", "random", "socket", "threading", "llama_cpp", "secrets"}


@functools.cache
def imported(path):
    """The full name of every module that a source file imports."""
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


def test_programs_do_not_import_each_other():
    for program in PROGRAMS:
        others = PROGRAMS - {program} | {"bench", "tests"}
        for path in sources(program):
            assert not {name.split(".")[0] for name in imported(path)} & others, path


def test_shared_imports_no_program():
    for path in sources("shared"):
        others = PROGRAMS | {"lab", "bench", "tests"}
        assert not {name.split(".")[0] for name in imported(path)} & others, path


def test_only_one_package_imports_llama_cpp():
    users = {
        path.relative_to(ROOT).parent.as_posix()
        for package in [*PROGRAMS, "shared", "lab"]
        for path in sources(package)
        if any(name.split(".")[0] == "llama_cpp" for name in imported(path))
    }
    assert users == {"shared/llama"}


def sources_imported(path):
    """The files of this project that a source file imports."""
    files = {
        ROOT / f"{module.replace('.', '/')}{end}"
        for module in imported(path)
        for end in (".py", "/__init__.py")
    }
    return {file for file in files if file.is_file()}


def reached_from(*patterns):
    """The files of these patterns, and all that they import, directly or not."""
    found, waiting = set(), {path for pattern in patterns for path in ROOT.glob(pattern)}
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting |= sources_imported(path) - found
    return sorted(found)


def test_each_part_of_the_core_is_where_this_file_says():
    assert [pattern for pattern in CORE if not list(ROOT.glob(pattern))] == []


def test_the_core_uses_no_clock_no_event_loop_and_no_native_code():
    for path in reached_from(*CORE):
        assert not {name.split(".")[0] for name in imported(path)} & FORBIDDEN_IN_CORE, path


def test_the_engine_s_loop_reaches_no_settings_no_files_and_no_native_code():
    for path in reached_from("lead/engine/loop.py"):
        assert path.parent.name != "settings", path
        assert not {name.split(".")[0] for name in imported(path)} & FORBIDDEN_IN_LOOP, path


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("chat.program, chat.prompt", {"numpy", "llama_cpp"}),
        ("lead.cli", {"fastapi", "numpy", "llama_cpp", "gguf"}),
        ("lead.server.server", {"numpy", "jinja2", "llama_cpp", "llguidance", "gguf"}),
        ("docs.generate.command_lines", {"llama_cpp"}),
        (
            "lead.engine.worker",
            {
                *("fastapi", "asyncio", "pydantic_settings", "llama_cpp.llama", "gguf"),
                "shared.settings.command_line",
            },
        ),
        ("lead.tokenizer.job_handler", {"fastapi", "asyncio", "pydantic_settings", "llama_cpp.llama"}),
    ],
)
def test_a_process_loads_no_library_that_it_does_not_need(module, unwanted):
    code = f"import sys, {module}; print(sorted({unwanted} & set(sys.modules)))"
    assert run_python("-c", code, check=True).stdout.strip() == "[]"


def test_the_shared_package_is_empty_itself():
    assert (ROOT / "shared" / "__init__.py").read_text() == ""
