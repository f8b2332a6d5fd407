"""Functions are called in a process on cores of its own."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lead.planning.pinned_process import PinnedProcess
from shared import cpus
from shared.errors import ConfigError, ModelLoadError


def refuse():
    raise ModelLoadError("it is not a model")


@pytest.fixture(scope="module")
def process():
    with PinnedProcess(frozenset({min(cpus.usable())})) as process:
        yield process


def test_it_runs_where_it_was_told(process):
    assert process.call(cpus.usable) == {min(cpus.usable())}
    assert process.call(os.getpid) != os.getpid()


def test_what_is_raised_there_is_raised_here(process):
    with pytest.raises(ModelLoadError, match="it is not a model"):
        process.call(refuse)


def test_a_process_that_dies_is_told_in_a_sentence():
    with PinnedProcess(None) as process, pytest.raises(ConfigError, match="has died: is there enough memory"):
        process.call(os.abort)


def test_one_that_has_died_takes_no_more_calls():
    with PinnedProcess(None) as process:
        for _ in range(3):
            with pytest.raises(ConfigError, match="has died"):
                process.call(os.abort)


def test_a_core_that_is_not_there_is_named():
    with PinnedProcess(frozenset({60_000})) as process, pytest.raises(ConfigError, match="60000"):
        process.call(cpus.usable)


def test_results_can_be_awaited_later(process):
    later = process.start(time.monotonic)
    assert later.result() > 0


MEASURING = """
import sys, time
from lead.planning.pinned_process import PinnedProcess
if __name__ == "__main__":
    with PinnedProcess(None) as process:
        process.call(time.monotonic)
        process.start(time.sleep, 1000)
        print("measuring", flush=True)
        time.sleep(1000)
"""


def test_it_ends_with_the_program_that_is_killed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MEASURING)
    command = [sys.executable, program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as started:
        assert started.stdout.readline() == b"measuring\n"
        started.send_signal(signal.SIGKILL)
        assert started.stdout.read() == b""  # which ends with the last process that could write
