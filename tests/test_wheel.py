import os
import zipfile
from pathlib import Path

import pytest

from docs.generate.command_lines import command_line_files
from tests.python_runs import run_python

ROOT = Path(__file__).parent.parent
PUBLISHED = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"}
"""The variables with which `make wheels` builds."""


def build(source, folder, variables):
    command = ("-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)
    return run_python(*command, env=os.environ | variables)


def unpacked_wheel(source, folder, variables=PUBLISHED):
    """The files of a freshly built wheel."""
    built = build(source, folder, variables)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return unpacked_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def without_shtab(tmp_path):
    """Variables for a Python that does not find the writer of completions."""
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "shtab.py").write_text("raise ImportError('no shtab')")
    return {"PYTHONPATH": str(folder)}


def printed(code, *folders):
    """The output of a program that sees the packages of these folders first."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    return run_python("-c", code, check=True, env=environment, cwd=folders[0]).stdout


def test_the_wheel_holds_the_packages_and_what_belongs_to_the_command_lines(installed):
    packages = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    (data,) = installed.glob("*.data")
    assert packages == {"lead", "back", "chat", "shared", "fleet", "lab", data.name}
    assert {path.name for path in (installed / "lab").iterdir()} == {
        *("__init__.py", "py.typed", "doctor", "measuring", "planning", "simulation")
    }
    files = {path: path.read_text("utf-8") for path in data.rglob("*") if path.is_file()}
    assert files == command_line_files(data / "data" / "share")


def test_no_wheel_is_published_without_completions_and_man_pages(tmp_path, without_shtab):
    built = build(ROOT, tmp_path, PUBLISHED | without_shtab)
    assert (built.returncode, list(tmp_path.glob("*.whl"))) == (1, [])
    assert "no shtab" in built.stdout + built.stderr


def test_any_other_wheel_is_built_without_them(tmp_path, without_shtab):
    files = unpacked_wheel(ROOT, tmp_path, without_shtab)
    assert (files / "lead" / "cli.py").exists()
    assert list(files.glob("*.data")) == []


def test_the_shipped_models_are_found_in_the_wheel(installed):
    code = "from shared.model_files.builtin import *; print(builtin_draft()); print(builtin_target())"
    paths = [Path(line) for line in printed(code, installed).splitlines()]
    assert [path.is_file() and path.is_relative_to(installed) for path in paths] == [True, True]


def test_the_draft_model_of_smollm2_is_found_in_a_wheel_of_its_own(installed, tmp_path):
    package = unpacked_wheel(ROOT / "models" / "smollm2" / "wheel", tmp_path)
    code = (
        "import pathlib, shared.model_files.builtin as b; print(b.named_model(pathlib.Path('smollm2-draft')))"
    )
    found = Path(printed(code, installed, package).strip())
    assert found == package / "llama_duo_smollm2" / "smollm2-draft.gguf"
    assert found.is_file()


def test_the_page_is_in_the_wheel(installed):
    shipped = {path.name for path in (installed / "lead" / "http" / "page").iterdir()}
    assert shipped >= {path.name for path in (ROOT / "lead" / "http" / "page").iterdir() if path.is_file()}


def test_the_console_scripts_are_declared(installed):
    (entry_points,) = installed.glob("*.dist-info/entry_points.txt")
    text = entry_points.read_text()
    assert [f"{name} = {name}.__main__:main" in text for name in ("lead", "back", "chat")] == [True] * 3
    assert "lead-llama-server = lead.__main__:main_as_llama_server" in text
