"""What else a simulated machine does changes the time of its steps."""

import random

import pytest

from lead.simulation.machine_load import IDLE, MachineLoad


def slowdowns(load, n=400):
    rng = random.Random(1)
    return [load.slowdown(step / 10, rng) for step in range(n)]


def test_steps_of_an_idle_machine_take_their_usual_time():
    assert set(slowdowns(IDLE)) == {1.0}


def test_steps_drift_around_their_usual_time():
    factors = slowdowns(MachineLoad(drift=0.4))
    assert (min(factors), max(factors)) == pytest.approx((0.6, 1.4), abs=0.01)


def test_the_given_share_of_steps_takes_much_longer():
    assert slowdowns(MachineLoad(outliers=0.1)).count(4.0) == pytest.approx(40, abs=15)
