"""Work that depends on a stranger's file runs in a process that may be killed."""

import os
import signal
import sys

import pytest

from shared.descriptors import n_open
from shared.errors import ConfigError
from shared.limited_call import LimitError, call_limited
from shared.sandbox import MEGABYTE

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")


def call(work, seconds=60.0):
    return call_limited(work, seconds, 64 * MEGABYTE)


def refuse():
    raise ConfigError("it is not Jinja")


def loop():
    while True:
        pass


def test_its_result_is_that_of_a_process_of_its_own():
    assert call(os.getpid) != os.getpid()
    assert len(call(lambda: "x" * MEGABYTE)) == MEGABYTE


def test_what_is_wrong_is_raised_here():
    with pytest.raises(ConfigError, match="it is not Jinja"):
        call(refuse)


def test_it_may_take_so_much_time():
    with pytest.raises(LimitError, match=r"more than 0\.05 s of CPU time"):
        call(loop, 0.05)


@linux
def test_it_may_take_so_much_memory():
    with pytest.raises(LimitError, match="too much memory"):
        call(lambda: len("x" * (256 * MEGABYTE)))


def test_it_may_crash():
    with pytest.raises(LimitError, match="or crashes"):
        call(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_it_leaves_no_descriptors():
    before = n_open()
    call(os.getpid)
    with pytest.raises(LimitError):
        call(loop, 0.05)
    assert n_open() == before
