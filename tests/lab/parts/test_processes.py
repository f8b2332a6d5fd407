import pytest

from lab.parts.processes import Program, ProgramError


def test_lines_before_the_mark_do_not_count():
    with Program("json.tool", "--nonsense") as program:
        program.wait_for("unrecognized")
        program.process.wait()
        with pytest.raises(ProgramError):
            program.wait_for("unrecognized", since=program.n_lines())
