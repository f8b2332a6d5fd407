"""Functions are called in a process on cores of its own."""

import os
import signal
import subprocess
import sys

import pytest

from lead.planning.pinned_process import pinned_process
from shared import cpus
from shared.errors import ConfigError, ModelLoadError


def refuse():
    raise ModelLoadError("it is not a model")


@pytest.fixture(scope="module")
def process():
    with pinned_process(frozenset({min(cpus.usable())})) as process:
        yield process


def test_it_runs_where_it_was_told(process):
    assert process.submit(cpus.usable).result() == {min(cpus.usable())}
    assert process.submit(os.getpid).result() != os.getpid()


def test_what_is_raised_there_is_raised_here(process):
    with pytest.raises(ModelLoadError, match="it is not a model"):
        process.submit(refuse).result()


def test_a_process_that_dies_is_told_in_a_sentence():
    with (
        pytest.raises(ConfigError, match="has died: is there enough memory"),
        pinned_process(None) as process,
    ):
        process.submit(os.abort).result()


def test_a_core_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="60000"), pinned_process(frozenset({60_000})):
        pass


MEASURING = """
import sys, time
from lead.planning.pinned_process import pinned_process
if __name__ == "__main__":
    with pinned_process(None) as process:
        process.submit(time.monotonic).result()
        process.submit(time.sleep, 1000)
        print("measuring", flush=True)
        time.sleep(1000)
"""


def test_it_ends_with_the_program_that_is_killed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MEASURING)
    command = [sys.executable, program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as started:
        assert started.stdout.readline() == b"measuring\n"
        started.send_signal(signal.SIGKILL)
        assert started.stdout.read() == b""  # which ends with the last process that could write
