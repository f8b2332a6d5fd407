from lead.engine.recalibration import Recalibration
from lead.engine.step_plan import TrialPlace
from shared.errors import KvCacheFullError
from tests.lead.engine.test_loop import run, submit


class Measured:
    """How often steps were timed."""

    def __init__(self, *, learns=True):
        self.n = 0
        self._learns = learns

    def __call__(self, place):
        self.n += 1
        self.place = place
        return self._learns


def anywhere(_):
    return TrialPlace()


def recalibration(now=0.0):
    measured = Measured()
    return Recalibration(measured, now), measured


def test_nothing_is_measured_before_it_is_due():
    again, measured = recalibration(now=5.0)
    again.run(7.9, anywhere)
    assert (again.wait(7.9), measured.n) == (8.0 - 7.9, 0)


def test_each_time_it_is_due_it_is_measured_once():
    again, measured = recalibration()
    for now in (3.0, 3.1, 10.0, 10.1):
        again.run(now, anywhere)
    assert (again.wait(10.1), measured.n) == (30.0 - 10.1, 2)


def test_times_that_were_missed_count_once():
    again, measured = recalibration()
    for _ in range(9):
        again.run(1000.0, anywhere)
    assert (again.wait(1000.0), measured.n) == (None, 1)


def test_without_a_place_nothing_is_measured():
    again, measured = recalibration()
    again.run(3.0, lambda _: None)
    assert (again.wait(3.0), measured.n) == (7.0, 0)


def test_an_attempt_that_failed_is_repeated_soon_and_then_less_and_less_often():
    measured = Measured(learns=False)
    again = Recalibration(measured, 0.0)
    waits = []
    now = 0.0
    while (wait := again.wait(now)) is not None:
        waits.append(wait)
        now += wait
        again.run(now, anywhere)
    assert waits == [3.0, 3.0, 4.0, 6.0, 12.0, 2.0, 24.0, 48.0]
    assert measured.n == len(waits)


def test_an_idle_engine_waits_no_longer_than_until_then():
    again, measured = recalibration()
    pipe, _ = run([], [], [], recalibration=again)
    assert pipe.waits == [3.0, 7.0, 20.0]
    assert measured.n == 3


def test_after_a_request_steps_are_timed_again():
    again, measured = recalibration()
    _, target = run([submit(max_tokens=1)], *([[]] * 6), recalibration=again)
    assert measured.n > 0
    assert measured.place.n_cached == len(target.slots[measured.place.slot])


def test_a_cache_that_is_full_after_all_is_no_failure():
    def measure(_):
        raise KvCacheFullError("no cells")

    pipe, _ = run([], [], recalibration=Recalibration(measure, 0.0))
    assert pipe.waits == [3.0, 7.0]
