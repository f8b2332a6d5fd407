"""T(n) of an earlier start is used if a step takes about as long as then."""

import pytest

from lead.engine.calibration import StepTimer
from lead.engine.step_times import StepTimes
from shared.step_cost import StepCost

TIMES = StepTimes(n_threads=3, seconds={1: 0.02, 2: 0.025, 8: 0.06})


def timer(single):
    now = [0.0]

    def decode(tokens):
        now[0] += single * len(tokens)

    return StepTimer(decode, lambda: None, 100, lambda: now[0])


@pytest.mark.parametrize("pace", [0.85, 1.0, 1.2])
def test_all_sizes_are_known_at_the_pace_of_now(pace):
    cost = StepCost()
    assert TIMES.teach(cost, timer(0.02 * pace))
    assert cost.table() == pytest.approx({n: seconds * pace for n, seconds in TIMES.seconds.items()})


@pytest.mark.parametrize("pace", [0.5, 1.5])
def test_another_pace_says_that_they_are_not_as_before(pace):
    cost = StepCost()
    assert not TIMES.teach(cost, timer(0.02 * pace))
    assert cost.table() == {}


def test_a_table_without_single_steps_says_nothing():
    assert not StepTimes(n_threads=3, seconds={2: 0.1}).teach(StepCost(), timer(0.02))
