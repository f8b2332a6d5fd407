"""The durations of work on simulated machines."""

import pytest

from lab.simulation.clock import VirtualClock
from lab.simulation.machine import LEAD, Contention, HostTime, SharedMachine, StepTable

TABLE = StepTable("test", ((1, 0.010), (2, 0.012), (4, 0.008), (8, 0.016)))


@pytest.mark.parametrize(("n", "ms"), [(1, 10), (2, 12), (3, 10), (4, 8), (6, 12), (8, 16), (10, 20)])
def test_between_and_beyond_its_points_it_is_straight(n, ms):
    assert TABLE.seconds(n) == pytest.approx(ms / 1000)


def test_beyond_a_falling_end_it_stays():
    assert StepTable("test", ((1, 0.010), (2, 0.008))).seconds(5) == pytest.approx(0.008)


def test_one_point_is_the_same_for_all():
    assert StepTable("test", ((1, 0.010),)).seconds(7) == 0.01


@pytest.fixture
def clock():
    return VirtualClock()


def ends(clock, jobs, contention=None):
    """The times when jobs are done. Each job is a name and (begin, seconds alone)."""
    machine = SharedMachine(clock, contention or Contention(2.0, 4.0))
    found = {}

    def begin(who, seconds):
        def done():
            found[who] = clock.now

        machine.run(who, seconds, done)

    for who, (at, seconds) in jobs.items():
        clock.after(at, lambda who=who, seconds=seconds: begin(who, seconds))
    clock.run(lambda: len(found) == len(jobs))
    return found


@pytest.mark.parametrize(
    ("jobs", "contention", "expected"),
    [
        ({LEAD: (0, 1.0), "a": (1.5, 1.0)}, None, {LEAD: 1.0, "a": 2.5}),
        ({LEAD: (0, 1.0), "a": (0, 1.0)}, None, {LEAD: 2.0, "a": 2.5}),
        # The back begins when half of the step is done; the other half takes 1 s, in which it does a quarter.
        ({LEAD: (0, 1.0), "a": (0.5, 1.0)}, None, {LEAD: 1.5, "a": 2.25}),
        ({"a": (0, 1.0), "b": (0, 1.0)}, None, {"a": 1.0, "b": 1.0}),
        ({LEAD: (0, 1.0), "a": (0.3, 1.0)}, Contention(), {LEAD: 1.0, "a": 1.3}),
    ],
    ids=["one after the other", "together", "for some time together", "two backs", "factors of one"],
)
def test_lead_and_back_are_slower_for_the_time_that_both_compute(clock, jobs, contention, expected):
    assert ends(clock, jobs, contention) == pytest.approx(expected)


def test_the_engine_takes_more_time_of_its_own_where_drafts_are_planned():
    host = HostTime(step_s=1.0, planning_s=2.0, token_s=0.5)
    assert host.of_step(4, plans=False) == 1.0
    assert host.of_step(4, plans=True) == 5.0
