import pytest

from lead.http.middleware.guesses import KeyGuesses

ATTACKER, NEIGHBOR = "10.0.0.66", "10.0.0.2"


@pytest.fixture
def guesses(clock):
    return KeyGuesses(clock)


def tried(guesses, host, digests):
    """The number of wrong keys that could be tried."""
    n = 0
    for digest in digests:
        if not guesses.seconds_to_wait(host, digest):
            guesses.note(host, digest, is_right=False)
            n += 1
    return n


def test_after_twenty_wrong_keys_one_a_second_can_be_tried(guesses, clock):
    assert tried(guesses, ATTACKER, map(str, range(240))) == 20
    assert guesses.seconds_to_wait(ATTACKER, "more") == 1
    clock.now = 10.0
    assert tried(guesses, ATTACKER, map(str, range(240, 480))) == 10


def test_meanwhile_a_right_key_says_no_more_than_a_wrong_one(guesses):
    tried(guesses, ATTACKER, map(str, range(20)))
    assert guesses.seconds_to_wait(ATTACKER, "right")


def test_others_and_those_known_at_the_address_do_not_wait(guesses):
    guesses.note(ATTACKER, "right", is_right=True)
    tried(guesses, ATTACKER, map(str, range(240)))
    assert guesses.seconds_to_wait(ATTACKER, "right") == 0
    assert guesses.seconds_to_wait(NEIGHBOR, "right") == 0


def test_one_with_an_outdated_key_keeps_nobody_out(guesses):
    assert tried(guesses, NEIGHBOR, ["old"] * 240) == 240
    assert guesses.seconds_to_wait(NEIGHBOR, "new") == 0


def test_a_machine_with_ipv6_has_one_of_its_networks(guesses):
    assert sum(tried(guesses, f"2001:db8::{i:x}", [str(i)]) for i in range(240)) == 20
    assert tried(guesses, "2001:db8:0:1::1", ["x"]) == 1


def test_what_is_remembered_is_bounded(guesses):
    for i in range(9000):
        guesses.note(f"host-{i}", "x", is_right=False)
    assert len(guesses._wrong) <= 2048
    assert len(guesses._seen) <= 4096
