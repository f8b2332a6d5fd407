import gc

import pytest

from shared.imports import import_program


@pytest.mark.parametrize("fails", [False, True])
def test_garbage_is_looked_for_after_the_import_but_not_before(tmp_path, monkeypatch, capsys, fails):
    program = tmp_path / f"program_that_fails_{fails}.py"
    program.write_text(f"import gc\nprint(gc.isenabled())\nassert not {fails}")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert import_program(program.stem).gc is gc
    except AssertionError:
        assert fails
    assert (capsys.readouterr().out, gc.isenabled()) == ("False\n", True)
