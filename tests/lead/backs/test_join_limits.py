"""How often a peer may join, and when it may join again."""

import pytest

from lead.backs.join_limits import FIRST_LOCKOUT_SECONDS, MAX_LOCKOUT_SECONDS, JoinLimits
from shared.errors import UnavailableError


@pytest.fixture
def limits():
    return JoinLimits()


def n_admitted(limits, peer, n, now=0.0):
    """How many of `n` attempts at the same moment are admitted."""
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
    limits.punish("flapping", 0.0)
    limits.admit("honest", 0.0)


def test_a_peer_that_was_disconnected_for_what_it_sent_may_join_later(limits):
    limits.punish("back", 100.0)
    with pytest.raises(UnavailableError, match="try again in 10 s"):
        limits.admit("back", 100.0)
    limits.admit("back", 100.0 + FIRST_LOCKOUT_SECONDS)


def test_each_further_offence_doubles_the_time_up_to_a_limit(limits):
    seconds = [limits.punish("back", float(now)) for now in range(100)]
    assert seconds[:4] == [10, 20, 40, 80]
    assert seconds[-1] == MAX_LOCKOUT_SECONDS


def test_offences_are_forgotten(limits):
    for now in range(5):
        limits.punish("back", float(now))
    assert limits.punish("back", 2000.0) == FIRST_LOCKOUT_SECONDS


def test_only_so_many_peers_are_remembered(limits):
    for peer in range(5000):
        limits.admit(str(peer), 0.0)
    assert len(limits) <= 1024
