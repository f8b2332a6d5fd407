"""What is installed from a wheel, without a checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def unpacked_wheel(source, folder):
    """The files of a freshly built wheel."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return unpacked_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


def printed(code, *folders):
    """What a program prints that sees the packages of these folders first."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, cwd=folders[0]
    ).stdout


def test_the_wheel_holds_the_four_packages_and_nothing_else(installed):
    packages = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    (data,) = installed.glob("*.data")
    assert packages == {"lead", "back", "chat", "shared", "fleet", data.name}
    files = {path.relative_to(data / "data") for path in data.rglob("*") if path.is_file()}
    assert files == {path.relative_to(ROOT) for path in (ROOT / "share").rglob("*") if path.is_file()}


def test_the_shipped_models_are_found_in_the_wheel(installed):
    code = "from shared.models.builtin import *; print(builtin_draft()); print(builtin_target())"
    paths = [Path(line) for line in printed(code, installed).splitlines()]
    assert [path.is_file() and path.is_relative_to(installed) for path in paths] == [True, True]


def test_the_draft_model_of_smollm2_is_found_in_a_wheel_of_its_own(installed, tmp_path):
    package = unpacked_wheel(ROOT / "models" / "smollm2" / "wheel", tmp_path)
    code = "import pathlib, shared.models.builtin as b; print(b.named_model(pathlib.Path('smollm2-draft')))"
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
