"""Nothing is imported from the working directory."""

import os
from pathlib import Path

import pytest

from shared import search_paths
from shared.search_paths import without_working_directory
from tests.python_runs import run_python

SHOW = "import sys, os; from shared.search_paths import leave_working_directory as leave; leave()"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *(("", None), (".", None), (":", None)),
        *(("lib:../other:", None), ("/opt/a", "/opt/a"), (":/opt/a:.:/opt/b", "/opt/a:/opt/b")),
    ],
)
@pytest.mark.parametrize("name", ["PYTHONPATH", "PATH", "LD_LIBRARY_PATH"])
def test_lists_of_folders_keep_their_absolute_entries(name, given, kept):
    assert without_working_directory({name: given, "HOME": "."}).get(name) == kept


def test_other_variables_stay():
    assert without_working_directory({"HOME": "."}) == {"HOME": ".", "PYTHONSAFEPATH": "1"}


def after_leaving(folder, *, then, **environment):
    """The output of `then`, in a process that was started in `folder` and left it."""
    (folder / "program.py").write_text(f"{SHOW}\n{then}\n")
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = run_python("-m", "program", cwd=folder, env=inherited | environment, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("path", ["", ".", ":", "lib:."])
def test_nothing_is_found_there_any_more(tmp_path, path):
    (tmp_path / "lib").mkdir()
    for name in ("queue", "lib/json"):
        (tmp_path / f"{name}.py").write_text("print('executed')")
    assert after_leaving(tmp_path, then="import queue, json", PYTHONPATH=path) == ""


def test_an_absolute_entry_is_searched_even_if_it_is_the_working_directory(tmp_path):
    (tmp_path / "mine.py").write_text("print('mine')")
    path = os.pathsep.join([str(tmp_path), ""])
    assert after_leaving(tmp_path, then="import mine; print(os.environ['PYTHONPATH'])", PYTHONPATH=path) == (
        f"mine\n{tmp_path}"
    )


def test_a_checkout_that_is_not_installed_is_found_by_its_children(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "__init__.py").touch()
    (tmp_path / "shared" / "search_paths.py").write_text(Path(search_paths.__file__).read_text())
    assert after_leaving(tmp_path, then="print(os.environ['PYTHONPATH'], sys.path[0])", PYTHONPATH="") == (
        f"{tmp_path} {tmp_path}"
    )


def test_a_folder_that_is_gone_does_no_harm(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os; os.rmdir({str(gone)!r}); {SHOW}; print('left')"
    assert run_python("-c", code, cwd=gone, check=True).stdout == "left\n"
