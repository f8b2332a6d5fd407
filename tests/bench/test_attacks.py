import pytest

from bench.attack.client import Outcome
from bench.attack.requests import Attack, Delivery
from bench.attacks import Tally, is_failure

ATTACK = Attack("POST", "/tokenize", "a test")
LEFT = Attack("POST", "/tokenize", "a test", delivery=Delivery.LEFT)


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (Outcome(200, 0.1), False),
        (Outcome(400, 0.1), False),
        (Outcome(501, 0.1), False),
        (Outcome(503, 0.1), False),
        (Outcome(500, 0.1), True),
        (Outcome(None, 0.1), True),
        (Outcome(200, 0.1, 'data: {"error":{"type":"server_error"}}'), True),
    ],
)
def test_what_counts_as_a_failure(outcome, failed):
    assert is_failure(ATTACK, outcome) == failed


def test_who_left_needs_no_answer():
    assert not is_failure(LEFT, Outcome(None, 0.1))


def test_the_tally_counts_statuses_and_keeps_the_slowest_and_the_failures():
    tally = Tally()
    for number in range(10):
        tally.add(number, ATTACK, Outcome(200, number / 10))
    tally.add(10, ATTACK, Outcome(500, 0.0))
    tally.add(11, LEFT, Outcome(None, 0.0))
    assert tally.statuses == {"200": 10, "500": 1, "not read": 1}
    assert [seconds for seconds, _ in tally.slowest] == [0.9, 0.8, 0.7, 0.6, 0.5]
    assert len(tally.failures) == 1
    assert tally.failures[0].startswith("10: 500 ")
