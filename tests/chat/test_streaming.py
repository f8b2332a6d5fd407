"""Streaming an answer, and retrying while the server is not ready."""

from chat.streaming import LONGEST_DELAY_S, RetryDelays


def test_delays_double_from_a_second():
    delays = RetryDelays()
    assert [delays.next(None) for _ in range(4)] == [1, 2, 4, 8]


def test_retry_after_is_limited():
    assert RetryDelays().next(1e9) == LONGEST_DELAY_S
