import pytest

from bench.attack.client import Outcome
from bench.attack.requests import Attack, Delivery
from bench.attacks import is_failure

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
