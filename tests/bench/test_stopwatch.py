import pytest

from bench.stopwatch import Stopwatch


class Seconds:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def seconds():
    return Seconds()


def test_it_counts_the_time_in_which_it_runs(seconds):
    watch = Stopwatch(seconds)
    seconds.now += 5
    with watch.running():
        seconds.now += 2
        assert watch() == 2
    seconds.now += 5
    with watch.running():
        seconds.now += 1
    assert watch() == 3


def test_it_can_stand_still_while_it_runs(seconds):
    watch = Stopwatch(seconds)
    with watch.running():
        seconds.now += 2
        with watch.stopped():
            seconds.now += 7
            assert watch() == 2
        seconds.now += 1
        assert watch() == 3
