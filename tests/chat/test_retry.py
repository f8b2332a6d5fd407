"""A server that is not ready is tried again a limited number of times."""

from chat.retry import LONGEST_DELAY_S, N_RETRIES, RetryDelays


def test_delays_double_from_a_second():
    delays = RetryDelays()
    assert [delays.next(None) for _ in range(4)] == [1, 2, 4, 8]


def test_retry_after_of_the_server_is_used():
    assert RetryDelays().next(5.0) == 5.0


def test_retry_after_is_limited():
    assert RetryDelays().next(1e9) == LONGEST_DELAY_S


def test_the_number_of_retries_is_limited():
    delays = RetryDelays()
    assert [delays.next(0.0) for _ in range(N_RETRIES + 1)] == [0.0] * N_RETRIES + [None]
