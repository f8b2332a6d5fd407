"""What is installed from a wheel, without a checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The files of a freshly built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_the_four_packages_and_nothing_else(installed):
    packages = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert packages == {"lead", "back", "chat", "shared", "fleet"}


def test_the_shipped_models_are_found_in_the_wheel(installed):
    code = "from shared.models.builtin import *; print(builtin_draft()); print(builtin_target())"
    environment = os.environ | {"PYTHONPATH": str(installed)}
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        cwd=installed,
    )
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert [path.is_file() and path.is_relative_to(installed) for path in paths] == [True, True]


def test_the_page_is_in_the_wheel(installed):
    shipped = {path.name for path in (installed / "lead" / "http" / "page").iterdir()}
    assert shipped >= {path.name for path in (ROOT / "lead" / "http" / "page").iterdir() if path.is_file()}


def test_the_console_scripts_are_declared(installed):
    (entry_points,) = installed.glob("*.dist-info/entry_points.txt")
    text = entry_points.read_text()
    assert [f"{name} = {name}.__main__:main" in text for name in ("lead", "back", "chat")] == [True] * 3
    assert "lead-llama-server = lead.__main__:main_as_llama_server" in text
