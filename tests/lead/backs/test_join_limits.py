from contextlib import ExitStack

import pytest

from lead.backs.join_limits import (
    FIRST_LOCKOUT_SECONDS,
    MAX_HELD_REFUSALS,
    MAX_LOCKOUT_SECONDS,
    REFUSAL_SECONDS,
    JoinLimits,
)
from shared.errors import UnavailableError


@pytest.fixture
def limits():
    return JoinLimits()


def n_admitted(limits, peer, n, now=0.0):
    """The number of attempts that are admitted, of `n` at the same moment."""
    n_refused = 0
    for _ in range(n):
        try:
            limits.admit(peer, now)
        except UnavailableError:
            n_refused += 1
    return n - n_refused


def test_all_backs_of_a_site_may_join_at_once(limits):
    assert n_admitted(limits, "site", 64) == 64


def test_a_peer_that_joins_again_and_again_has_to_wait(limits):
    assert n_admitted(limits, "flapping", 1000) < 100
    assert n_admitted(limits, "flapping", 1000, now=5.0) == 5


def test_one_peer_does_not_keep_another_out(limits):
    n_admitted(limits, "flapping", 1000)
    limits.admit("honest", 0.0)


def test_a_back_that_was_disconnected_for_what_it_sent_may_join_later(limits):
    limits.lock_out("peer", "desk", 100.0)
    with pytest.raises(UnavailableError, match="try again in 10 s"):
        limits.admit_name("peer", "desk", 100.0)
    limits.admit_name("peer", "desk", 100.0 + FIRST_LOCKOUT_SECONDS)


def test_other_backs_of_the_same_peer_may_join(limits):
    limits.lock_out("peer", "broken", 0.0)
    limits.admit("peer", 0.0)
    limits.admit_name("peer", "honest", 0.0)


def test_a_name_that_does_not_wait_makes_its_peer_wait(limits):
    limits.lock_out("peer", "broken", 0.0)
    for _ in range(8):
        limits.admit("peer", 1.0)
        with pytest.raises(UnavailableError, match="try again in 9 s"):
            limits.admit_name("peer", "broken", 1.0)
    with pytest.raises(UnavailableError, match="too many connections"):
        limits.admit("peer", 1.0)


def test_a_name_that_waits_leaves_room_for_the_others_of_its_peer(limits):
    now = 0.0
    for delay in (1, 2, 4, 8, 16, 30, 30, 30):  # between a back's attempts
        limits.lock_out("peer", "broken", now)
        now += delay
        if delay < FIRST_LOCKOUT_SECONDS:
            with pytest.raises(UnavailableError):
                limits.admit_name("peer", "broken", now)
    assert n_admitted(limits, "peer", 64, now) > 40


def test_a_peer_that_changes_its_name_each_time_is_locked_out(limits):
    for number in range(9):
        limits.lock_out("peer", f"name-{number}", 0.0)
    with pytest.raises(UnavailableError, match="try again in 10 s"):
        limits.admit("peer", 0.0)


def test_a_single_name_does_not_lock_out_its_peer(limits):
    now = 0.0
    for _ in range(50):
        seconds = limits.lock_out("peer", "broken", now)
        limits.admit("peer", now)
        now += seconds


def test_each_further_offense_doubles_the_time_up_to_a_limit(limits):
    seconds = [limits.lock_out("peer", "desk", float(now)) for now in range(100)]
    assert seconds[:4] == [10, 20, 40, 80]
    assert seconds[-1] == MAX_LOCKOUT_SECONDS


def test_offenses_are_forgotten(limits):
    for now in range(5):
        limits.lock_out("peer", "desk", float(now))
    assert limits.lock_out("peer", "desk", 2000.0) == FIRST_LOCKOUT_SECONDS


def test_only_so_many_are_remembered(limits):
    for number in range(5000):
        limits.admit(f"peer {number}", 0.0)
        limits.lock_out("peer", str(number), 0.0)
    assert len(limits) <= 2048


def test_refusals_are_held_back_but_only_so_many_at_once(limits):
    with ExitStack() as stack:
        held = [stack.enter_context(limits.held_refusal()) for _ in range(MAX_HELD_REFUSALS + 5)]
    assert held == [REFUSAL_SECONDS] * MAX_HELD_REFUSALS + [0.0] * 5
    with limits.held_refusal() as seconds:
        assert seconds == REFUSAL_SECONDS
