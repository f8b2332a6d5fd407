"""While nothing else is to be done, the durations of steps of several sizes are measured."""

import pytest

from lead.engine.calibration import Recalibration, StepTimer, StepTimes, recalibrate
from lead.engine.slot import TrialPlace
from shared.cache_edits import Trim
from shared.errors import KvCacheFullError
from shared.llama.span import Span
from shared.step_cost import StepCost
from tests.lead.engine.test_loop import run, submit
from tests.toy_engine import make_engine, make_limits
from tests.toy_model import N_VOCAB, FakeTarget


class Timed(FakeTarget):
    """The duration of its steps is set by a test. It has its own clock."""

    def __init__(self, seconds_of):
        super().__init__()
        self.now = 0.0
        self.widest = []
        self._seconds_of = seconds_of

    def clock(self):
        return self.now

    def decode(self, spans):
        self.now += self._seconds_of(len(spans[0].tokens))
        self.widest = max(self.widest, spans[0].tokens, key=len)
        return super().decode(spans)


def calibrated(seconds_of, interrupted=lambda: False):
    target, cost = Timed(seconds_of), StepCost()
    StepTimer.of_target(target, N_VOCAB, target.clock).calibrate(cost, interrupted)
    return target, cost


def dip(n):
    return 0.01 * (1.5 if n == 4 else n)


def test_the_table_knows_every_small_size_dips_included():
    _, cost = calibrated(dip)
    assert [cost.seconds(n) for n in range(1, 9)] == pytest.approx([dip(n) for n in range(1, 9)])
    assert max(cost.table()) >= 16


def test_one_busy_moment_spoils_no_entry():
    moments = iter([50 if i == 5 else 1 for i in range(1000)])
    _, cost = calibrated(lambda n: dip(n) * next(moments))
    assert cost.seconds(6) / cost.seconds(1) == pytest.approx(6, rel=0.05)


def test_tokens_differ_as_those_of_a_text_do_and_are_taken_back():
    target, _ = calibrated(dip)
    assert len(set(target.widest)) > len(target.widest) / 2
    assert target.slots == [[]]


def test_it_ends_when_interrupted():
    answers = iter([False, False, True])
    target, cost = calibrated(dip, lambda: next(answers))
    assert len(target.steps) == len(cost.table()) == 2
    assert target.slots == [[]]


def test_on_a_gpu_the_first_step_of_a_size_counts_for_nothing(monkeypatch):
    monkeypatch.setattr(Timed, "is_offloaded", True)
    compiled = set()

    def seconds(n):
        first = 0.5 if n not in compiled else 0.0
        compiled.add(n)
        return first + dip(n)

    target, cost = Timed(seconds), StepCost()
    timer = StepTimer.of_target(target, N_VOCAB, target.clock)
    timer.warm_up()
    began = target.now
    timer.calibrate(cost)
    assert [cost.seconds(n) for n in range(1, 9)] == pytest.approx([dip(n) for n in range(1, 9)])
    assert target.now - began < 11.0


def test_on_a_gpu_steady_steps_are_timed(monkeypatch):
    monkeypatch.setattr(Timed, "is_offloaded", True)
    sizes = []

    def seconds(n):
        """The first step of a size has no graph yet. The second is recorded, and later steps are replayed."""
        n_equal = next((i for i, size in enumerate(reversed(sizes)) if size != n), len(sizes))
        sizes.append(n)
        return dip(n) * (1.4, 2.0, 1.0)[min(n_equal, 2)]

    target, cost = Timed(seconds), StepCost()
    StepTimer.of_target(target, N_VOCAB, target.clock).calibrate(cost, batch_sizes=(1, 2, 4), n_repeats=2)
    assert [cost.seconds(n) for n in (1, 2, 4)] == pytest.approx([dip(n) for n in (1, 2, 4)])


def test_a_slow_model_is_not_calibrated_for_long():
    target, cost = calibrated(lambda _: 4.0)
    assert target.now < 20
    assert cost.seconds(1) == pytest.approx(4.0)


def test_sizes_and_time_can_be_chosen():
    target, cost = Timed(dip), StepCost()
    given = {"batch_sizes": (1, 3), "n_repeats": 100, "max_seconds": 1.0}
    StepTimer.of_target(target, N_VOCAB, target.clock).calibrate(cost, **given)
    assert set(cost.table()) == {1, 3}
    assert 1.0 < target.now < 1.1


def recalibrated(seconds_of, known=None, interrupted=lambda: False, **more):
    """`known`: T(1) before."""
    target, cost = Timed(seconds_of), StepCost()
    cost.learn(1, known or seconds_of(1))
    learned = recalibrate(target, cost, N_VOCAB, interrupted, target.clock, **more)
    return learned, cost.table()


def test_steps_can_be_timed_again():
    learned, table = recalibrated(dip, known=2.0)
    assert learned
    assert table[4] / table[2] == pytest.approx(dip(4) / dip(2), rel=0.05)


@pytest.mark.parametrize(
    "given",
    [{"known": 0.005}, {"max_step_seconds": 0.15}, {"interrupted": iter([False] * 10 + [True]).__next__}],
    ids=["busy", "slow", "interrupted"],
)
def test_what_is_doubtful_is_not_learned(given):
    learned, table = recalibrated(dip, **given)
    assert not learned
    assert list(table) == [1]


def test_whole_turns_are_learned_although_it_was_interrupted():
    learned, table = recalibrated(dip, interrupted=iter([False] * 15 + [True]).__next__)
    assert learned
    assert max(table) == 16


def test_on_a_busy_machine_two_steps_are_all():
    target, cost = Timed(dip), StepCost()
    cost.learn(1, dip(1) / 2)
    recalibrate(target, cost, N_VOCAB, lambda: False, target.clock)
    assert len(target.steps) == 2


@pytest.mark.parametrize(
    ("place", "left"),
    [(TrialPlace(0, 3), [4, 5, 6]), (TrialPlace(0, 1, [Trim(0, 1)]), [4])],
    ids=["stays", "is cut first"],
)
def test_a_text_that_is_in_the_cache(place, left):
    target = Timed(dip)
    target.decode([Span(0, 0, [4, 5, 6], 0)])
    recalibrate(target, StepCost(), N_VOCAB, lambda: False, target.clock, place=place)
    assert target.slots == [left]


# When an idle engine measures again


class Measured:
    """Counts how often steps were timed."""

    def __init__(self, *, learns=True):
        self.n = 0
        self._learns = learns

    def __call__(self, place):
        self.n += 1
        self.place = place
        return self._learns


def anywhere(_):
    return TrialPlace()


def recalibration(now=0.0, find_place=anywhere):
    measured = Measured()
    return Recalibration(measured, now, find_place), measured


@pytest.mark.parametrize(
    ("began", "times", "find_place", "wait", "n"),
    [
        (5.0, [7.9], anywhere, 8.0 - 7.9, 0),
        (0.0, [3.0, 3.1, 10.0, 10.1], anywhere, 30.0 - 10.1, 2),
        (0.0, [1000.0] * 9, anywhere, None, 1),
        (0.0, [3.0], lambda _: None, 7.0, 0),
    ],
    ids=["not before it is due", "once each time", "what was missed counts once", "not without a place"],
)
def test_it_is_measured_when_it_is_due(began, times, find_place, wait, n):
    again, measured = recalibration(began, find_place)
    for now in times:
        again.run_due(now, idle=True)
    assert (again.seconds_until_due(times[-1]), measured.n) == (wait, n)


def test_an_attempt_that_failed_is_repeated_soon_and_then_less_and_less_often():
    measured = Measured(learns=False)
    again = Recalibration(measured, 0.0, anywhere)
    waits = []
    now = 0.0
    while (wait := again.seconds_until_due(now)) is not None:
        waits.append(wait)
        now += wait
        again.run_due(now, idle=True)
    assert waits == [3.0, 3.0, 4.0, 6.0, 12.0, 2.0, 24.0, 48.0]
    assert measured.n == len(waits)


def test_an_idle_engine_waits_no_longer_than_until_then():
    again, measured = recalibration()
    pipe, _ = run([], [], [], chores=[again])
    assert pipe.waits == [3.0, 7.0, 20.0]
    assert measured.n == 3


def test_after_a_request_steps_are_timed_again():
    engine = make_engine(make_limits())
    again, measured = recalibration(find_place=engine.slots.find_place)
    _, target = run([submit(max_tokens=1)], *([[]] * 6), engine=engine, chores=[again])
    assert measured.n > 0
    assert measured.place.n_cached == len(target.slots[measured.place.slot])


def test_a_cache_that_is_full_after_all_is_no_failure():
    def measure(_):
        raise KvCacheFullError("no cells")

    pipe, _ = run([], [], chores=[Recalibration(measure, 0.0, anywhere)])
    assert pipe.waits == [3.0, 7.0]


# T(n) of an earlier start is used if a step takes about as long as then.

EARLIER = StepTimes(n_threads=3, seconds={1: 0.02, 2: 0.025, 8: 0.06})


def timer_of(single):
    now = [0.0]

    def decode(tokens):
        now[0] += single * len(tokens)

    return StepTimer(decode, lambda: None, 100, lambda: now[0])


@pytest.mark.parametrize("pace", [0.85, 1.0, 1.2])
def test_all_sizes_are_known_at_the_pace_of_now(pace):
    cost = StepCost()
    assert EARLIER.teach(cost, timer_of(0.02 * pace))
    assert cost.table() == pytest.approx({n: seconds * pace for n, seconds in EARLIER.seconds.items()})


WITHOUT_SINGLE_STEPS = StepTimes(n_threads=3, seconds={2: 0.1})


@pytest.mark.parametrize(("times", "pace"), [(EARLIER, 0.5), (EARLIER, 1.5), (WITHOUT_SINGLE_STEPS, 1.0)])
def test_another_pace_says_that_they_are_not_as_before(times, pace):
    cost = StepCost()
    assert not times.teach(cost, timer_of(0.02 * pace))
    assert cost.table() == {}


def test_what_another_size_costs_is_kept_with_them():
    cost = StepCost(settles=True)
    cost.learn_table({1: 0.02, 2: 0.025})
    cost.learn_settling([0.001, 0.004])
    kept = StepTimes.of(cost, 3)
    again = StepCost(settles=True)
    assert kept.teach(again, timer_of(0.02))
    assert again.settling == [0.001, 0.004]
