"""A program as a child of an actor."""

import subprocess
import sys

from fleet.child import ChildProcess


def test_a_child_ends_when_it_is_told_to():
    child = ChildProcess("http.server", "0")
    assert child.is_alive
    child.stop(60)
    assert not child.is_alive


def test_a_child_ends_with_who_started_it():
    code = "from fleet.child import ChildProcess as C; import os; C('http.server', '0'); os._exit(3)"
    started = subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, check=False, timeout=120
    )  # returns when nobody has the pipe any more, to which the child logs
    assert started.returncode == 3
