"""Functions are called in a process that has its own cores."""

import os
import subprocess
import sys

import pytest

from lab.planning.pinned_process import parallel_map, pinned_process
from shared import cpus
from shared.errors import ConfigError, ModelLoadError
from tests.real.processes import wait_for_end

OWN_PID = "__import__('os').getpid()"
PARENT = f"""
from lab.planning.pinned_process import parallel_map

with parallel_map(2) as spread:
    print(*spread(eval, [{OWN_PID!r}] * 2), flush=True)
    input()
"""


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
        pytest.raises(ConfigError, match="Check that memory suffices"),
        pinned_process(None) as process,
    ):
        process.submit(os.abort).result()


def test_a_core_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="60000"), pinned_process(frozenset({60_000})):
        pass


def test_calls_are_spread_over_processes_and_their_results_come_in_order():
    with parallel_map(2) as spread:
        assert spread(abs, [-1, 2, -3]) == [1, 2, 3]
        assert len({os.getpid(), *spread(eval, [OWN_PID] * 3)}) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends them on Linux only")
def test_they_end_with_the_process_that_started_them():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2
    assert all(wait_for_end(pid) for pid in pids)
