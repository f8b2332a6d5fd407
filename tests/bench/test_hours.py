"""Twenty virtual minutes of changing use: T(n) stays what steps take, and costs no tokens."""

import pytest

from bench.simulation.hours import hours, schedule


@pytest.fixture(scope="module")
def outcome():
    return hours(20 * 60, 0.2, SEED)


SEED = 9
"""With one to eight clients, all kinds of backs, idle minutes, jumps, and a machine that sleeps."""


def test_at_no_moment_is_an_entry_further_off_than_the_speed_has_changed(outcome):
    assert outcome.errors.ever < 4 * 3


def test_in_steady_use_every_entry_is_what_a_step_takes(outcome):
    assert outcome.errors.n_judged > 500
    assert outcome.errors.measured < 1.5
    assert outcome.errors.others < 3


def test_as_many_tokens_are_written_as_if_it_were_told_what_steps_take(outcome):
    assert outcome.to_told > 0.97


def test_these_minutes_have_everything_that_may_happen():
    phases = schedule(20 * 60, SEED)
    assert {phase.n_clients for phase in phases} >= {0, 1, 8}
    assert len({name for phase in phases for name in phase.backs}) >= 4
    assert any(phase.suspended_s for phase in phases)
    assert max(phase.slow_at_first for phase in phases) == 3
    assert any(phase.slow_at_first != phase.slow_at_last for phase in phases)
