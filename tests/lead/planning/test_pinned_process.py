"""Functions are called in a process on cores of its own."""

import os
import time

import pytest

from lead.planning.pinned_process import PinnedProcess, result
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


def test_a_core_that_is_not_there_is_named():
    with PinnedProcess(frozenset({60_000})) as process, pytest.raises(ConfigError, match="60000"):
        process.call(cpus.usable)


def test_results_can_be_awaited_later(process):
    later = process.start(time.monotonic)
    assert result(later) > 0
