"""Nothing that tests have started outlives them, even after Ctrl-C."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

REAPER = [sys.executable, "-m", "tests.reaper"]
LEAVE_ONE = "setsid sleep 1000 & echo $!"
"""A process that a terminal's Ctrl-C does not reach."""


@pytest.mark.parametrize("status", [0, 5])
def test_what_a_command_leaves_is_ended_and_its_status_kept(status):
    ran = subprocess.run(
        [*REAPER, "sh", "-c", f"{LEAVE_ONE}; exit {status}"], check=False, capture_output=True, text=True
    )
    assert (ran.returncode, psutil.pid_exists(int(ran.stdout))) == (status, False)
    assert "left running, and ended now: " in ran.stderr
    assert "sleep 1000" in ran.stderr


def test_ctrl_c_lets_the_command_end_first():
    command = [*REAPER, "sh", "-c", f"trap 'exit 7' INT; {LEAVE_ONE}; while :; do sleep .01; done"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as running:
        left = int(running.stdout.readline())
        os.killpg(running.pid, signal.SIGINT)
    assert (running.returncode, psutil.pid_exists(left)) == (7, False)


def test_a_command_that_a_signal_ends_has_failed():
    assert subprocess.run([*REAPER, "sh", "-c", "kill -9 $$"], check=False).returncode == 128 + 9
