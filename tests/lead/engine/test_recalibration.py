from lead.engine.recalibration import Recalibration
from tests.lead.engine.test_loop import run, submit


class Measured:
    """How often steps were timed."""

    n = 0

    def __call__(self):
        self.n += 1


def recalibration(now=0.0):
    measured = Measured()
    return Recalibration(measured, now), measured


def test_nothing_is_measured_before_it_is_due():
    again, measured = recalibration(now=5.0)
    again.run(7.9)
    assert (again.wait(7.9), measured.n) == (8.0 - 7.9, 0)


def test_each_time_it_is_due_it_is_measured_once():
    again, measured = recalibration()
    for now in (3.0, 3.1, 10.0, 10.1):
        again.run(now)
    assert (again.wait(10.1), measured.n) == (30.0 - 10.1, 2)


def test_it_comes_to_an_end():
    again, measured = recalibration()
    for _ in range(9):
        again.run(1000.0)
    assert (again.wait(1000.0), measured.n) == (None, 4)


def test_an_idle_engine_waits_no_longer_than_until_then():
    again, measured = recalibration()
    pipe, _ = run([], [], [], recalibration=again)
    assert pipe.waits == [3.0, 7.0, 20.0]
    assert measured.n == 3


def test_the_first_request_ends_it():
    again, measured = recalibration()
    pipe, _ = run([submit(max_tokens=1)], *([[]] * 4), recalibration=again)
    assert pipe.waits[-1] in {None, 0.0}
    assert measured.n == 0
