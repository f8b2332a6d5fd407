import itertools
import random

import pytest

from lead.generation.restarts import MOST_DEATHS_AT_START, MOST_IDLE_DEATHS, STABLE_SECONDS, Restarts


class Supervisor:
    def __init__(self):
        self.now = 0.0
        self.restarts = Restarts(random.Random(1), lambda: self.now)

    def life(self, seconds=1.0, *, ready=True, worked=False, busy=False):
        """A process lives and dies; returns the delay until the next one."""
        self.restarts.on_start()
        self.now += seconds
        if ready:
            self.restarts.on_ready()
        if worked:
            self.restarts.on_work()
        self.restarts.on_death(was_busy=busy)
        return self.restarts.next_delay()


@pytest.fixture
def supervisor():
    return Supervisor()


def test_the_first_restart_is_not_delayed(supervisor):
    assert supervisor.life() == 0


def test_each_further_death_without_work_delays_the_next_start_more(supervisor):
    delays = [supervisor.life(busy=True) for _ in range(12)]
    assert all(before < after for before, after in itertools.pairwise(delays[:7]))
    assert 0.1 <= delays[1] <= 0.2
    assert max(delays) <= 30


@pytest.mark.parametrize("life", [{"worked": True}, {"seconds": STABLE_SECONDS}])
def test_a_process_that_has_worked_or_lived_long_is_followed_without_a_delay(supervisor, life):
    for _ in range(4):
        supervisor.life(busy=True)
    assert supervisor.life(**life) == 0


def test_a_machine_that_is_away_for_long_ends_no_lead(supervisor):
    supervisor.life(worked=True)
    for _ in range(3 * MOST_IDLE_DEATHS):
        supervisor.restarts.on_start()
        supervisor.restarts.on_work()
        supervisor.restarts.on_death(was_busy=False)
        assert not supervisor.restarts.are_in_vain


@pytest.mark.parametrize(("ready", "n"), [(False, MOST_DEATHS_AT_START), (True, MOST_IDLE_DEATHS)])
def test_processes_that_die_with_nothing_to_do_are_given_up(supervisor, ready, n):
    for _ in range(n - 1):
        supervisor.life(ready=ready)
    assert not supervisor.restarts.are_in_vain
    supervisor.life(ready=ready)
    assert supervisor.restarts.are_in_vain


def test_processes_that_die_of_their_work_are_not_given_up(supervisor):
    for _ in range(100):
        supervisor.life(busy=True)
    assert not supervisor.restarts.are_in_vain


def test_a_process_that_has_worked_makes_up_for_those_that_died_idle(supervisor):
    for _ in range(MOST_IDLE_DEATHS - 1):
        supervisor.life()
    supervisor.life(worked=True)
    supervisor.life()
    assert not supervisor.restarts.are_in_vain
