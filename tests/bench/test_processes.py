import signal

import pytest

from bench.processes import Program, ProgramError


def test_lines_before_the_mark_do_not_count():
    with Program("json.tool", "--nonsense") as program:
        program.wait_for("unrecognized")
        program.process.wait()
        with pytest.raises(ProgramError):
            program.wait_for("unrecognized", since=program.n_lines())


def test_a_stopped_program_can_still_be_ended():
    with Program("http.server", "--bind", "127.0.0.1", "0") as program:
        program.signal(signal.SIGSTOP)
        program.stop()
        assert program.process.returncode == -signal.SIGTERM
