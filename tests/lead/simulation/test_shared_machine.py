"""On one machine lead and back slow each other down while both compute."""

import pytest

from lead.simulation.clock import VirtualClock
from lead.simulation.shared_machine import Contention, SharedMachine


@pytest.fixture
def clock():
    return VirtualClock()


def ends(clock, jobs, contention=None):
    """When each job is done: pairs of who (None: the lead) and (begin, seconds alone)."""
    machine = SharedMachine(clock, contention or Contention(2.0, 4.0))
    found = {}

    def begin(who, seconds):
        def done():
            found[who] = clock.now

        if who is None:
            machine.run_lead(seconds, done)
        else:
            machine.run_back(who, seconds, done)

    for who, (at, seconds) in jobs.items():
        clock.after(at, lambda who=who, seconds=seconds: begin(who, seconds))
    clock.run(lambda: len(found) == len(jobs))
    return found


def test_alone_each_takes_its_time(clock):
    assert ends(clock, {None: (0, 1.0), "a": (1.5, 1.0)}) == {None: 1.0, "a": 2.5}


def test_while_both_compute_both_are_slower(clock):
    assert ends(clock, {None: (0, 1.0), "a": (0, 1.0)}) == pytest.approx({None: 2.0, "a": 2.5})


def test_only_the_time_together_counts(clock):
    # The back begins when half of the step is done; the other half takes 1 s, in which it does a quarter.
    assert ends(clock, {None: (0, 1.0), "a": (0.5, 1.0)}) == pytest.approx({None: 1.5, "a": 2.25})


def test_backs_do_not_slow_each_other_down(clock):
    assert ends(clock, {"a": (0, 1.0), "b": (0, 1.0)}) == {"a": 1.0, "b": 1.0}


def test_factors_of_one_change_nothing(clock):
    assert ends(clock, {None: (0, 1.0), "a": (0.3, 1.0)}, Contention()) == pytest.approx(
        {None: 1.0, "a": 1.3}
    )


def test_leads_on_one_core_share_it(clock):
    machine = SharedMachine(clock, Contention(one_core_each=True))
    ends = {}
    for name, seconds in (("a", 1.0), ("b", 0.5)):
        machine.run_lead(seconds, lambda name=name: ends.setdefault(name, clock.now), name)
    clock.run(lambda: len(ends) == 2)
    assert ends == pytest.approx({"b": 1.0, "a": 1.5})
