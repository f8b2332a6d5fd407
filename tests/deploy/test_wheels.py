"""The parts of `make wheels`, `make release` and the workflows that need no compiler."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CUT = ROOT / "deploy/wheels/cut.sh"
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")
}


def git(folder, *arguments):
    found = shutil.which("git")
    assert found
    return subprocess.run([found, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one commit."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@b")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text(
        re.sub("^## .*", "## 0.1.0, unreleased", changes.read_text(), count=1, flags=re.MULTILINE)
    )
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "Begin")
    return tmp_path


def cut(folder, version):
    return subprocess.run([CUT, version], cwd=folder, check=False, capture_output=True, text=True)


def test_a_release_sets_the_version_dates_the_changelog_and_is_tagged(checkout):
    assert cut(checkout, "7.8.9").returncode == 0
    assert git(checkout, "show", "v7.8.9:pyproject.toml").count('\nversion = "7.8.9"\n') == 1
    assert re.search(
        r"^## 7\.8\.9, \d{4}-\d\d-\d\d$", git(checkout, "show", "v7.8.9:CHANGELOG.md"), re.MULTILINE
    )
    assert git(checkout, "status", "--porcelain") == ""


@pytest.mark.parametrize("version", ["7.8", "v7.8.9", "7.8.9-rc1"])
def test_a_version_is_three_numbers(checkout, version):
    assert "three numbers" in cut(checkout, version).stderr


def test_what_is_not_committed_is_not_released(checkout):
    (checkout / "pyproject.toml").write_text("")
    assert "not committed" in cut(checkout, "7.8.9").stderr


def test_a_version_is_released_once(checkout):
    cut(checkout, "7.8.9")
    assert "There is a tag v7.8.9" in cut(checkout, "7.8.9").stderr
    assert "no unreleased part" in cut(checkout, "7.9.0").stderr


def commands(*arguments):
    """The commands that make would run."""
    found = shutil.which("make")
    assert found
    inherited = {"MAKEFLAGS", "MAKELEVEL", "CMAKE_ARGS", "WHEELS", "NATIVE"}
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    command = [found, "--dry-run", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def test_wheels_of_other_arguments_are_in_another_folder():
    asked = [], ["CMAKE_ARGS=-DGGML_CUDA=on"], ["CMAKE_ARGS=-DGGML_CUDA=on -DX=/y"], ["WHEELS=/z"]
    folders = [commands("wheels", *arguments).split()[-1] for arguments in asked]
    assert folders == ["dist", "dist/-DGGML_CUDA=on", "dist/-DGGML_CUDA=on_-DX=-y", "/z"]


def test_a_native_set_up_compiles_even_if_there_is_a_wheel(tmp_path):
    made = commands("setup", f"VENV={tmp_path}", "NATIVE=1")
    assert "--no-cache-dir --no-deps --force-reinstall -c constraints.txt llama-cpp-python" in made
    assert '[ -z "1" ] && ' in made


@pytest.mark.parametrize(
    ("workflow", "expected"),
    [("release", {"release", "test", "wheels"}), ("ci", {"quick", "test", "wheels"})],
)
def test_a_workflow_runs_what_the_makefile_has(workflow, expected):
    steps = [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]
    verbs = {verb for step in steps for verb in re.findall(r"\bmake (\w+)", step.get("run", ""))}
    assert verbs == expected
    for verb in verbs:
        commands(verb)


def test_no_job_may_write_but_the_one_that_publishes():
    jobs = {name: job for workflow in WORKFLOWS.values() for name, job in workflow["jobs"].items()}
    assert all(workflow["permissions"] == {} for workflow in WORKFLOWS.values())
    assert {name for name in jobs if "write" in jobs[name]["permissions"].values()} == {"publish"}
