"""Functions are called in a process on cores of its own."""

import os

import pytest

from lab.planning.pinned_process import pinned_process
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
        pytest.raises(ConfigError, match="Check that memory suffices"),
        pinned_process(None) as process,
    ):
        process.submit(os.abort).result()


def test_a_core_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="60000"), pinned_process(frozenset({60_000})):
        pass
