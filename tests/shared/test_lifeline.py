"""A process ends with its parent, whatever it is executing."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from tests.real.processes import wait_for_end

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends them on Linux only")

PARENT = """
import sys, threading
from shared.python_child import ChildProcess, child_command, child_environment, program_command

def start():
    environment = child_environment() | {"PYTHONPATH": sys.argv[1]}
    command = program_command(*sys.argv[2:]) if sys.argv[2:] else child_command("child")
    children.append(ChildProcess(command, env=environment))

children = []

for _ in range(2):
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
sys.stdin.read()
"""
CHILD = """
import os, signal
from shared.fork_server import fork

def say():
    os.write(1, b"%d\\n" % os.getpid())

def loop():
    say()
    while True:
        pass

"""
COMPUTE = "fork(loop)\nloop()"
IN_NATIVE_CODE = "say()\nsum(range(10**15))"
STOPPED = "say()\nos.kill(os.getpid(), signal.SIGSTOP)"
"""Stops the process as a debugger or a terminal does."""
ORPHAN = """
def fork_and_end():
    fork(loop)

fork(fork_and_end)
os.wait()
loop()
"""


@pytest.fixture
def start(tmp_path):
    """Starts a parent with two children that run `body`; returns it and the process ids."""
    pids = []

    def start(body, n, *program):
        (tmp_path / "child.py").write_text(CHILD + body)
        command = [sys.executable, "-c", PARENT, str(tmp_path), *program]
        parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        pids.extend(int(parent.stdout.readline()) for _ in range(2 * n))
        return parent, pids[:]

    yield start
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@linux
@pytest.mark.parametrize(
    ("body", "n", "program"),
    [
        *((COMPUTE, 2, ()), (IN_NATIVE_CODE, 1, ()), (STOPPED, 1, ()), (ORPHAN, 2, ())),
        ("", 1, ("sh", "-c", "echo $$; kill -STOP $$")),
    ],
    ids=["loops", "native", "stopped", "orphan", "another program"],
)
def test_who_was_started_and_forked_ends_with_its_parent(start, body, n, program):
    parent, pids = start(body, n, *program)
    parent.kill()
    parent.communicate()
    assert all(wait_for_end(pid) for pid in pids)


@linux
def test_a_child_goes_on_when_the_thread_that_started_it_has_ended(start):
    parent, pids = start(COMPUTE, 2)
    assert not any(wait_for_end(pid, 0.0) for pid in pids)
    parent.communicate()
    assert all(wait_for_end(pid) for pid in pids)


def test_a_process_whose_parent_is_gone_already_ends_at_once():
    reading, writing = os.pipe()
    os.close(writing)
    code = f"from shared.lifeline import end_with; end_with({reading}); import time; time.sleep(600)"
    done = subprocess.run([sys.executable, "-c", code], pass_fds=[reading], check=False, timeout=120)
    os.close(reading)
    assert done.returncode == 1
