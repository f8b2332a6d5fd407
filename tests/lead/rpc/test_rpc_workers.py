import logging
from contextlib import contextmanager

import pytest

from lead.rpc.rpc_workers import wait_for_workers
from shared.errors import ModelLoadError
from shared.rpc.rpc_probe import ForeignWorkerError, WorkerAwayError


class Workers:
    """Workers that answer from a time on. The clock advances while somebody sleeps."""

    def __init__(self, **ready_at):
        self.ready_at, self.now, self.asked, self.held = ready_at, 0.0, [], set()

    def ask(self, address, _):
        self.asked.append(address)
        if self.now < self.ready_at[address] or address in self.held:
            raise WorkerAwayError(f"RPC worker {address} cannot be reached")
        return self.hold(address)

    @contextmanager
    def hold(self, address):
        self.held.add(address)
        try:
            yield
        finally:
            self.held.remove(address)

    def sleep(self, seconds):
        self.now += seconds

    def wait(self, seconds):
        wait_for_workers(list(self.ready_at), seconds, self.ask, lambda: self.now, self.sleep)


def test_workers_that_answer_are_asked_once():
    workers = Workers(a=0, b=0)
    workers.wait(60)
    assert (workers.asked, workers.now) == (["a", "b"], 0)


def test_two_addresses_are_two_workers():
    workers = Workers(a=0)
    with pytest.raises(WorkerAwayError, match="worker a"):
        wait_for_workers(["a", "a"], 60, workers.ask, lambda: workers.now, workers.sleep)
    assert not workers.held


def test_one_that_comes_in_time_is_waited_for():
    workers = Workers(a=0, b=20)
    workers.wait(60)
    assert 20 <= workers.now < 21


def test_the_wait_has_an_end_for_all_of_them_together():
    workers = Workers(a=40, b=80)
    with pytest.raises(WorkerAwayError, match="worker b"):
        workers.wait(60)
    assert 60 <= workers.now < 61


def test_what_will_never_be_a_worker_is_not_waited_for():
    def ask(address, _):
        raise ForeignWorkerError(f"the program at {address} is not an RPC worker")

    with pytest.raises(ModelLoadError, match="the program at a"):
        wait_for_workers(["a"], 60, ask, lambda: 0.0)


def test_the_log_says_every_ten_seconds_what_is_waited_for(caplog):
    caplog.set_level(logging.WARNING)
    Workers(a=25).wait(60)
    assert [record.getMessage() for record in caplog.records] == [
        "RPC worker a cannot be reached. Waiting up to 60 s (--rpc-timeout)"
    ] * 3
