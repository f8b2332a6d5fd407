import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.step_cost import StepCost
from tests.lead.engine.speculation.support import Q4_0, T1


def learned(table, repeats=3, seconds=T1):
    cost = StepCost()
    for _ in range(repeats):
        for n, ratio in table.items():
            cost.learn(n, seconds * ratio)
    return cost


def ratios(cost, table):
    return {n: cost.seconds(n) / cost.seconds(1) for n in table}


def test_every_width_keeps_its_own_cost_dips_included():
    assert ratios(learned(Q4_0), Q4_0) == pytest.approx(Q4_0)


@pytest.mark.parametrize(
    ("table", "n", "ratio"),
    [
        (Q4_0, 4, Q4_0[4]),
        ({4: 1.0, 8: 2.0}, 5, 1.25),
        ({1: 1.0, 4: 1.6}, 6, 2.0),
        ({1: 1.0, 3: 2.16, 4: 1.51}, 9, 1.51),
        ({1: 1.0, 16: 2.0, 17: 3.4}, 34, 2 * 3.4),
        ({3: 1.0, 5: 2.0}, 1, 1.0),
    ],
    ids=[
        *("a size that was seen once", "between two sizes", "beyond the widest", "it never falls there"),
        *("a token costs no more than those of the widest", "fewer tokens than ever seen"),
    ],
)
def test_from_few_sizes_the_cost_is_known_of(table, n, ratio):
    assert learned(table, repeats=1).seconds(n) == pytest.approx(T1 * ratio)


def test_from_a_single_width_the_others_are_guessed_to_rise():
    cost = learned({4: 1.0})
    assert cost.seconds(4) == pytest.approx(T1)
    assert cost.seconds(1) < cost.seconds(4) < cost.seconds(8)


def test_before_any_step_there_is_a_guess():
    cost = StepCost()
    assert 0 < cost.seconds(1) < cost.seconds(2)
    assert cost.table() == {}


def test_wide_batches_share_buckets():
    cost = learned({1: 1.0, 120: 5.0, 250: 10.0})
    assert cost.seconds(128) == pytest.approx(T1 * 5.0)
    assert cost.seconds(192) == pytest.approx(T1 * 7.5)
    assert set(cost.table()) == {1, 128, 256}


def test_a_wide_batch_says_nothing_about_the_widest_exact_one():
    cost = learned({32: 2.0})
    for n in (33, 40, 47):
        cost.learn(n, 100 * T1)
    assert cost.seconds(32) == pytest.approx(T1 * 2.0, rel=0.5)


@pytest.mark.parametrize("outlier", [0.0, 1e-9, 1e-3, 0.4, 4.0, 1e4])
def test_an_outlier_moves_no_entry_by_much(outlier):
    cost = learned(Q4_0)
    cost.learn(1, outlier)
    for n, ratio in Q4_0.items():
        assert cost.seconds(n) == pytest.approx(T1 * ratio, rel=0.12)


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_one_busy_step_in_five_moves_no_entry_by_much(factor):
    cost, rng = learned(Q4_0, repeats=9), random.Random(5)
    for _ in range(300):
        n = rng.choice(list(Q4_0))
        cost.learn(n, T1 * Q4_0[n] * (factor if rng.random() < 0.2 else 1.0))
    for n, ratio in Q4_0.items():
        assert cost.seconds(n) == pytest.approx(T1 * ratio, rel=0.25)


def test_a_width_s_new_cost_is_learned_within_a_window():
    cost = learned(Q4_0, repeats=9)
    for _ in range(9):
        cost.learn(4, T1 * 3)
    assert cost.seconds(4) == pytest.approx(T1 * 3, rel=0.15)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_slows_the_whole_machine_down_is_carried_over_to_sizes_not_visited(factor):
    cost = learned(Q4_0, repeats=9)
    for i in range(200):  # texts get longer, a neighbor starts or stops: a change over 150 steps
        for n in (1, 2):
            cost.learn(n, T1 * Q4_0[n] * factor ** min(1.0, i / 150))
    assert cost.seconds(4) == pytest.approx(T1 * Q4_0[4] * factor, rel=0.3)


# On a GPU


def settled(*sizes):
    """A cost that knows T(n), and has seen steps of these sizes on a GPU."""
    cost = StepCost(settles=True)
    for n in range(1, 5):
        cost.learn(n, T1 * n)
    before, n_equal = 0, 0
    for n in sizes:
        n_equal = n_equal + 1 if n == before else 0
        before = n
        cost.learn_next(n, T1 * (n + (0.3, 1.0, 0.0)[min(n_equal, 2)]))
    return cost


def test_steps_that_have_not_settled_say_nothing_about_steady_ones():
    cost = settled(1, 2, 2, 3, 1, 1, 4, 2, 1)
    assert [cost.seconds(n) for n in range(1, 5)] == pytest.approx([T1 * n for n in range(1, 5)])


def test_what_the_first_steps_of_a_size_cost_is_learned():
    often, rarely = settled(*[1, 2] * 100), settled(*[1, 1, 1, 2, 2, 2] * 60)
    assert often.settling == pytest.approx([0.3 * T1, 0.0], rel=0.05)
    assert rarely.settling == pytest.approx([0.3 * T1, 1.0 * T1], rel=0.05)


def test_what_was_measured_of_them_counts_at_once_and_never_shortens_a_step():
    cost = settled(1, 1, 1)
    cost.learn_settling([0.4 * T1, -0.1 * T1])
    assert cost.settling == [0.4 * T1, 0.0]


def test_a_step_tells_how_much_of_it_was_settling():
    cost = settled(1, 1, 1, 1)
    assert cost.learn_next(2, 2.3 * T1) == pytest.approx(0.3 * T1)
    assert cost.is_settling
    assert cost.learn_next(2, 3.0 * T1) == pytest.approx(1.0 * T1)
    assert cost.learn_next(2, 5.0 * T1) == 0
    assert not cost.is_settling


def test_what_a_prompt_takes_is_no_cost_of_a_change():
    cost = settled(*[1, 2] * 40)
    cost.learn_next(512, 300 * T1)
    cost.learn_next(1, 1.3 * T1)
    assert cost.settling[0] == pytest.approx(0.3 * T1, rel=0.2)
    assert cost.seconds(512) == pytest.approx(300 * T1, rel=0.5)


def test_an_interrupted_step_does_not_forbid_changes():
    cost = settled(*[1, 2] * 20)
    cost.learn_next(1, 1000 * T1)
    assert cost.settling[0] < 0.5 * T1


def test_steady_steps_are_learned():
    assert settled(*[2] * 40).seconds(2) == pytest.approx(2 * T1)
    cost = settled(2, 2)
    for _ in range(40):
        cost.learn_next(2, 3 * T1)
    assert cost.seconds(2) == pytest.approx(3 * T1, rel=0.05)


def test_on_a_cpu_every_step_counts():
    cost = StepCost()
    for n in (1, 2, 1, 2):
        cost.learn_next(n, T1 * n)
    assert cost.seconds(2) == pytest.approx(2 * T1)
    assert cost.settling == [0.0, 0.0]


def test_the_age_of_an_entry_is_counted_in_steps():
    cost = learned({1: 1.0, 2: 1.5}, repeats=1)
    assert (cost.age(2), cost.age(1)) == (0, 1)
    assert cost.age(3) > 1_000_000


@given(st.lists(st.tuples(st.integers(1, 600), st.floats(0, 1e6)), max_size=60), st.integers(1, 700))
def test_a_cost_is_always_a_positive_number(steps, n):
    cost = StepCost()
    for n_tokens, seconds in steps:
        cost.learn(n_tokens, seconds)
    assert 0 < cost.seconds(n) < float("inf")


def test_slow_moments_of_one_width_alone_do_not_make_the_others_seem_slow():
    rng = random.Random(1)
    cost = learned(Q4_0, repeats=5)
    for i in range(3000):
        busy = 1.5 if i % 200 < 40 else 1.0
        interrupted = rng.uniform(1.2, 3.0) if rng.random() < 0.08 else 1.0
        cost.learn(1, T1 * busy * interrupted * rng.lognormvariate(0, 0.03))
    assert ratios(cost, Q4_0) == pytest.approx(Q4_0, rel=0.2)


# Hours


def true_seconds(n):
    return T1 * (1 + 0.1 * (n - 1))


SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)


def in_turns(factor, n_steps, *mixes):
    """In every second phase the machine is slower by `factor`. Each phase has its own mix of sizes."""

    def step(i, rng):
        phase = i // n_steps % 2
        return rng.choice(mixes[phase]), factor if phase else 1.0, i % n_steps

    return step


def growing(growth, n_steps, early, late):
    """T(n) grows by a share along each text. The second half of each text has another mix of sizes."""

    def step(i, rng):
        at = i % n_steps / n_steps
        return rng.choice(early if at < 0.5 else late), 1 + growth * at, i % n_steps

    return step


MANY = range(1, 9)
FEW = (4, 4, 4, 5, 6)
HOURS = {
    "as ever": (in_turns(1, 100, [1], MANY), 60_000, 0.1),
    "a busy neighbor, drafts while it is busy": (in_turns(4, 250, [1], MANY), 60_000, 0.1),
    "a busy neighbor, drafts while it is not": (in_turns(2, 250, MANY, [1]), 60_000, 0.1),
    "a busy neighbor, drafts all the time": (in_turns(1.3, 1000, MANY, MANY), 60_000, 0.1),
    "a busy neighbor, longer drafts": (in_turns(2, 250, [4], FEW), 700_000, 0.1),
    "a busy neighbor, shorter drafts": (in_turns(3, 250, FEW, [4]), 60_000, 0.2),
    "no size in common": (in_turns(3, 300, [4], [5, 6]), 60_000, 0.03),
    "no size in common, wide ones": (in_turns(3, 3000, [1, 2], [6, 7, 8]), 60_000, 0.03),
    "texts that grow": (growing(0.5, 250, [4], [4, 5, 6]), 60_000, 0.03),
    "texts that grow, other sizes later": (growing(0.5, 250, [1, 1, 1, 3], [5, 6, 7]), 60_000, 0.03),
    "texts that grow, shorter drafts later": (growing(2, 400, [6, 7, 8], FEW), 60_000, 0.03),
    "wide decodes of a back": (growing(0.3, 300, [12, 12, 12, 16], [16, 5, 8]), 60_000, 0.03),
}


@pytest.mark.parametrize("hours", HOURS.values(), ids=HOURS.keys())
def test_after_hours_every_entry_is_what_a_step_takes(hours):
    pattern, n_steps, noise = hours
    rng, cost, measured = random.Random(1), StepCost(), set()
    cost.learn_sweeps((n, true_seconds(n) * rng.lognormvariate(0, 0.03)) for n in SIZES * 5)
    for i in range(n_steps):
        n, factor, n_since = pattern(i, rng)
        cost.learn(n, true_seconds(n) * factor * rng.lognormvariate(0, noise))
        measured = {n} if n_since == 0 else measured | {n}
        if n_since > 200 and i % 97 == 0:
            for size in (*SIZES, 24):
                error = cost.seconds(size) / (true_seconds(size) * factor)
                bound = 1.5 if size in measured else 2.0
                assert 1 / bound < error < bound, (i, size)


def test_a_machine_that_slept_during_a_step_is_not_slow_afterwards():
    cost = learned(Q4_0, repeats=9)
    for seconds in (8 * 3600, *[T1] * 9):
        cost.learn(1, seconds)
    assert {n: cost.seconds(n) for n in Q4_0} == pytest.approx({n: T1 * Q4_0[n] for n in Q4_0}, rel=0.05)


def test_a_size_first_seen_while_the_machine_changes_is_corrected_once_others_enclose_it():
    cost = learned(Q4_0, repeats=9)
    cost.learn(20, 4 * T1)  # from here on all steps take twice as long, but who would know
    for _ in range(5):
        for n in (1, 20):
            cost.learn(n, 2 * T1 * (2 if n == 20 else 1))
    for _ in range(20):
        cost.learn(1, 2 * T1)
    assert cost.seconds(20) == pytest.approx(4 * T1, rel=0.1)
    assert cost.seconds(4) == pytest.approx(2 * T1 * Q4_0[4], rel=0.1)


@pytest.mark.parametrize("interrupted", [(3, 5, 6, 8), (1,), (16,), (1, 2, 3), (12, 16), tuple(SIZES)])
def test_a_start_beside_other_programs_leaves_no_size_too_long_to_be_used(interrupted):
    """The first request soon ends the measurement, so the time of an interrupted step is in its median."""
    cost = StepCost()
    cost.learn_sweeps((n, true_seconds(n) * (13 if n in interrupted else 1)) for n in SIZES)
    for _ in range(500):
        cost.learn(1, true_seconds(1))
        cost.learn(4, true_seconds(4))
    for n in SIZES:
        assert cost.seconds(n) < 3 * true_seconds(n), n


STRIX_HALO = {1: 1.0, 2: 1.04, 3: 6.0, 4: 1.06, 5: 9.6, 6: 1.1}
"""T(n) / T(1) of q8_0 weights on a Strix Halo."""


def calibrated(table):
    cost = StepCost()
    cost.learn_sweeps([(n, T1 * ratio) for n, ratio in table.items()] * 5)
    return cost


def test_a_size_timed_once_on_a_busy_machine_is_not_slower_than_wider_ones_for_long():
    cost = calibrated({1: 1.0, 16: 2.0, 24: 3.0})
    cost.learn(18, 50 * T1)
    assert cost.seconds(18) > cost.seconds(24)
    for _ in range(300):
        cost.learn(16, 2 * T1)
        cost.learn(24, 3 * T1)
    assert cost.seconds(16) <= cost.seconds(18) <= cost.seconds(24)


def test_one_token_is_not_slower_than_two_for_ever():
    cost = calibrated({1: 2.0, 2: 1.0, 3: 1.1})
    for _ in range(2000):
        cost.learn(2, T1)
        cost.learn(3, 1.1 * T1)
    assert cost.seconds(1) == pytest.approx(T1, rel=0.05)


def test_what_was_timed_often_is_slower_than_wider_ones_for_thousands_of_steps():
    cost = calibrated(STRIX_HALO)
    for _ in range(1200):
        cost.learn(4, T1 * STRIX_HALO[4])
        cost.learn(6, T1 * STRIX_HALO[6])
    assert ratios(cost, STRIX_HALO) == pytest.approx(STRIX_HALO, rel=0.05)


def test_a_size_that_was_forgotten_is_as_slow_as_before_after_a_few_steps():
    cost = calibrated(STRIX_HALO)
    for _ in range(3000):
        cost.learn(4, T1 * STRIX_HALO[4])
    assert cost.seconds(3) < 1.1 * T1
    for n in (3, 4, 3, 4):
        cost.learn(n, T1 * STRIX_HALO[n])
    assert cost.seconds(3) > 4 * T1


def test_turns_replace_what_was_known_of_their_sizes_and_keep_the_others_in_proportion():
    cost = learned(Q4_0)
    cost.learn_sweeps([(1, 2 * T1), (2, 4 * T1), (1, 2 * T1), (2, 4 * T1), (1, 9 * T1), (2, 4 * T1)])
    assert (cost.seconds(1), cost.seconds(2)) == pytest.approx((2 * T1, 4 * T1))
    longer = math.sqrt(2 * 4 / Q4_0[2])  # as many times as those of the turns, in the mean
    assert cost.seconds(8) == pytest.approx(longer * T1 * Q4_0[8])
