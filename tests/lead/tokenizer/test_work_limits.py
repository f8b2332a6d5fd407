import os
import signal

import pytest

from lead.tokenizer.work_limits import (
    MEGABYTE,
    JobLimits,
    limit_data,
    limit_time,
    peak_memory,
    reserved_data,
)


def in_a_fork(function):
    """The status in which a process that runs `function` ends."""
    pid = os.fork()
    if not pid:
        try:
            function()
        except MemoryError:
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_limits_grow_with_the_size_of_a_job():
    small, large = JobLimits.of(0, 4.0), JobLimits.of(4 * MEGABYTE, 4.0)
    assert (small.cpu_seconds, large.cpu_seconds) == (4.0, 12.0)
    assert (small.heap_bytes // MEGABYTE, large.heap_bytes // MEGABYTE) == (96, 256)


def test_the_system_ends_a_process_that_computes_for_too_long():
    def compute():
        limit_time(0.05)
        while True:
            pass

    assert in_a_fork(compute) == -signal.SIGPROF


def test_a_limit_that_was_lifted_ends_nothing():
    def compute():
        limit_time(0.01)
        limit_time(0)
        sum(range(1_000_000))

    assert in_a_fork(compute) == 0


@pytest.mark.skipif(not reserved_data(), reason="the system does not say how much memory is reserved")
def test_memory_beyond_the_limit_cannot_be_allocated():
    def allocate():
        limit_data(reserved_data() + 10 * MEGABYTE)
        bytearray(1024 * MEGABYTE)

    assert in_a_fork(allocate) == 3


def test_the_peak_counts_memory_that_was_given_back():
    before = peak_memory()
    bytearray(b"x") * (before + 64 * MEGABYTE)
    assert peak_memory() > before + 32 * MEGABYTE
