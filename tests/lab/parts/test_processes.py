"""Programs are started, awaited, and run in the foreground of a terminal."""

import os
import pty
import signal
import sys

import pytest

from lab.parts.processes import Program, ProgramError

PARENT = """
import os, sys
from lab.parts.processes import run_in_foreground

status = run_in_foreground([sys.executable, "-c", {child!r}])
print("status", status, "ours", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
"""
"""A terminal in memory: its keys reach the group in its foreground, and no other group."""


def test_lines_before_the_mark_do_not_count():
    with Program("json.tool", "--nonsense") as program:
        program.wait_for("unrecognized")
        program.process.wait()
        with pytest.raises(ProgramError):
            program.wait_for("unrecognized", since=program.n_lines())


@pytest.fixture
def terminal():
    """A function that starts the parent in a terminal with `child` in the foreground; gives the keyboard."""
    pid, keyboard = 0, -1

    def start(child):
        nonlocal pid, keyboard
        pid, keyboard = pty.fork()
        if not pid:
            os.execv(sys.executable, [sys.executable, "-c", PARENT.format(child=child)])  # noqa: S606
        return keyboard

    yield start
    os.close(keyboard)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def read_until(keyboard, word):
    """The terminal's output up to the end of the line with `word`."""
    shown = b""
    while word not in shown or not shown.endswith(b"\n"):
        shown += os.read(keyboard, 1 << 10)
    return shown.decode()


def test_ctrl_c_reaches_the_child_alone(terminal):
    keyboard = terminal("import signal; print('up', flush=True); signal.pause()")
    read_until(keyboard, b"up")
    os.write(keyboard, b"\x03")
    assert f"status {-signal.SIGINT} ours True" in read_until(keyboard, b"status")


def test_a_child_that_was_stopped_goes_on(terminal):
    child = (
        "import os, signal; signal.signal(signal.SIGCONT, lambda *_: print('on', flush=True));"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    shown = read_until(terminal(child), b"status")
    assert "on" in shown
    assert "status 0 ours True" in shown
