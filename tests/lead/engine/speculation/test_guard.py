import pytest

from lead.engine.speculation.constants import DEFAULTS
from lead.engine.speculation.guard import Guard

T1 = 0.01


def learn(guard, *, gain=0.0, own=0.0, n=1, n_sequences=1):
    """Learn n steps, each with this relative gain of tokens. `own`: the engine's own time, in T(1)."""
    for _ in range(n):
        guard.learn(n_sequences, n_sequences * (1 + gain), (1 + own) * T1, T1)


def pauses(guard, n_steps, **steps):
    """The lengths of the pauses within this number of steps."""
    lengths, length = [], 0
    for _ in range(n_steps):
        learn(guard, **steps)
        if guard.is_pausing:
            length += 1
        elif length:
            lengths.append(length)
            length = 0
    return lengths


def paused():
    guard = Guard()
    while not guard.is_pausing:
        learn(guard, gain=-0.1)
    return guard


def gain(guard):
    guard.resume()
    learn(guard, gain=0.2, n=20)


@pytest.mark.parametrize("change", [gain, Guard.reset])
def test_after_a_gain_or_a_change_the_next_pause_is_short_again(change):
    guard = Guard()
    pauses(guard, 2000, gain=-0.2)
    change(guard)
    assert not guard.is_pausing
    assert pauses(guard, 100, gain=-0.2) == [64]


@pytest.mark.parametrize(("gain", "lengths"), [(0.01, []), (-0.1, [64, 256, 1024, 1024, 1024])])
def test_what_loses_pauses_longer_each_time_up_to_a_limit_and_what_gains_never(gain, lengths):
    assert pauses(Guard(), 4000, gain=gain) == lengths


def test_a_trial_costs_no_more_than_a_few_steps():
    guard, n_trial, lost = Guard(), 0, 0.3
    while not guard.is_pausing:
        learn(guard, gain=-lost)
        n_trial += 1
    assert n_trial * lost < DEFAULTS.guard_loss + lost


def test_the_engine_s_own_time_counts_where_only_speculation_takes_it():
    """In a pause a step takes a tenth longer than T(n), and with drafts another twentieth longer."""
    guard = paused()
    learn(guard, own=0.1, n=64)
    assert not guard.is_pausing
    learn(guard, own=0.1, n=200)
    assert not guard.is_pausing
    learn(guard, own=0.15, n=60)
    assert guard.is_pausing


@pytest.mark.parametrize("seconds", [1000.0, 1e9])
def test_one_interrupted_step_is_no_loss(seconds):
    guard = Guard()
    guard.learn(1, 1.0, seconds, T1)
    assert not guard.is_pausing


def test_a_pause_of_slow_steps_ends_with_its_seconds():
    guard = Guard()
    while not guard.is_pausing:
        guard.learn(1, 0.5, 2.0, 2.0)
    n = 0
    while guard.is_pausing:
        guard.learn(1, 1.0, 2.0, 2.0)
        n += 1
    assert 2.0 * n == pytest.approx(DEFAULTS.longest_pause_s, abs=2.0)


def test_with_fewer_sequences_it_tries_again():
    guard = Guard()
    learn(guard, gain=-0.1, n=100, n_sequences=4)
    learn(guard, n_sequences=4)
    assert guard.is_pausing
    learn(guard, n_sequences=3)
    assert not guard.is_pausing
