import os
import resource
import socket
import sys
import threading
from unittest.mock import Mock

import pytest

from shared.fork_server import ForkServer, fork, reap
from shared.sandbox import MEGABYTE, WorkerLimits

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")


def status_of(work):
    """The exit status of a forked process that does `work`."""
    return reap(fork(work))


def test_a_process_that_is_done_ends_well_and_one_that_fails_does_not():
    assert (status_of(lambda: None), status_of(lambda: 1 / 0)) == (0, 1)


def test_a_forked_process_does_not_have_what_is_unwanted():
    reading, writing = os.pipe()
    pid = fork(lambda: os.fstat(writing), [writing])
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)
    assert reap(pid) == 1


def test_a_limit_of_time_that_is_over_ends_nothing():
    def compute():
        with WorkerLimits().time(0.01):
            pass
        sum(range(1_000_000))

    assert status_of(compute) == 0


@linux
def test_a_hard_limit_of_the_system_stays():
    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        with WorkerLimits().memory(16 << 30):
            pass

    assert status_of(limit) == 0


def test_memory_that_was_given_back_counts_as_growth():
    def grow():
        limits = WorkerLimits()
        assert not limits.has_grown
        bytearray(b"x") * (64 * MEGABYTE)
        assert limits.has_grown

    assert status_of(grow) == 0


def test_a_worker_for_which_there_is_no_thread_ends_as_one_that_has_begun_nothing(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    control, ours = socket.socketpair()
    with control, ours:
        assert status_of(lambda: ForkServer(control, {})._start_work(ours, None)) == 0
