import itertools

import pytest

from lead.engine.target_threads import TargetThreads


class Machine:
    """A step takes `seconds[n]` with n threads, and advances the clock by this time."""

    def __init__(self, seconds, few=3, many=4):
        self.seconds, self.used, self.now = seconds, few, 0.0
        self.n_steps = 0
        self.threads = TargetThreads(self.use, few, many, lambda: self.now)

    def use(self, n):
        self.used = n

    def step(self):
        self.n_steps += 1
        self.now += self.seconds[self.used]
        return self.seconds[self.used]

    def measure(self, n_free=1000):
        """Measure until a command arrives after `n_free` looks."""
        looks = itertools.count(1)
        self.threads.measure(self.step, lambda: next(looks) > n_free)
        return self.used


@pytest.mark.parametrize(("of_many", "used"), [(0.03, 4), (0.041, 4), (0.044, 3), (0.08, 3)])
def test_a_core_is_left_free_where_a_step_is_clearly_shorter_then(of_many, used):
    assert Machine({3: 0.04, 4: of_many}).measure() == used


def test_once_they_are_faster_nothing_is_measured_any_more():
    machine = Machine({3: 0.04, 4: 0.02})
    machine.measure()
    n_steps = machine.n_steps
    assert (machine.measure(), machine.n_steps) == (4, n_steps)


def test_on_a_machine_that_was_busy_it_is_measured_again():
    machine = Machine({3: 0.04, 4: 0.06})
    machine.measure()
    machine.seconds[4] = 0.02
    assert machine.measure() == 4


def test_until_it_was_measured_all_cores_are_used():
    assert Machine({3: 0.02, 4: 0.04}).used == 4


def test_a_measurement_that_was_interrupted_is_made_again():
    machine = Machine({3: 0.02, 4: 0.04})
    assert machine.measure(n_free=1) == 4
    assert machine.measure() == 3


def test_a_slow_model_is_timed_once_with_each_number():
    machine = Machine({3: 5.0, 4: 2.0})
    assert machine.measure() == 4
    assert machine.n_steps == 4


def test_while_a_back_computes_on_this_machine_a_core_is_left_to_it():
    machine = Machine({3: 0.04, 4: 0.02})
    machine.measure()
    machine.threads.share(with_backs=True)
    assert machine.used == 3
    machine.threads.share(with_backs=False)
    assert machine.used == 4


def test_nothing_is_measured_beside_a_back():
    machine = Machine({3: 0.04, 4: 0.02})
    machine.threads.share(with_backs=True)
    assert machine.measure() == 3
    assert machine.n_steps == 0
    machine.threads.share(with_backs=False)
    assert machine.measure() == 4


@pytest.mark.parametrize("many", [0, 3])
def test_without_a_choice_nothing_is_measured(many):
    machine = Machine({3: 0.04}, many=many)
    assert machine.measure() == 3
    machine.threads.share(with_backs=False)
    assert (machine.used, machine.n_steps) == (3, 0)


@pytest.mark.parametrize(("n", "used"), [(4, 4), (3, 3), (9, 4)])
def test_what_an_earlier_start_has_found_is_used(n, used):
    machine = Machine({3: 0.04, 4: 0.02})
    machine.threads.choose(n)
    assert (machine.used, machine.threads.used) == (used, used)


def test_what_was_found_earlier_and_does_not_hold_any_more_is_measured_again():
    machine = Machine({3: 0.04, 4: 0.06})
    machine.threads.choose(4)
    machine.threads.choose(0)
    assert machine.measure() == 3
    assert machine.n_steps > 0
