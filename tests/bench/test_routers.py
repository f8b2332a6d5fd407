import sys

import pytest

from bench.processes import Program, ProgramError
from bench.routers import _wait, smg_python


def test_smg_is_that_of_the_environment_unless_another_one_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("SMG_PYTHON", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert smg_python() is None
    (tmp_path / "router/bin").mkdir(parents=True)
    (tmp_path / "router/bin/python").touch()
    assert smg_python() == tmp_path / "router/bin/python"
    monkeypatch.setenv("SMG_PYTHON", sys.executable)
    assert str(smg_python()) == sys.executable


def test_a_router_that_ends_is_not_waited_for():
    code = "import sys; sys.exit('no such option')"
    with (
        Program("router", "-c", code, command=(sys.executable,)) as program,
        pytest.raises(ProgramError, match="no such option"),
    ):
        _wait(program, lambda: False)
