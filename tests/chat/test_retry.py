"""A server that is not ready is given time, but not for ever."""

from chat.retry import LONGEST_DELAY_S, N_RETRIES, RetryDelays


def test_delays_double_from_a_second():
    delays = RetryDelays()
    assert [delays.next(None) for _ in range(4)] == [1, 2, 4, 8]


def test_the_servers_wish_is_followed():
    assert RetryDelays().next(5.0) == 5.0


def test_no_wish_is_longer_than_the_longest_delay():
    assert RetryDelays().next(1e9) == LONGEST_DELAY_S


def test_they_end():
    delays = RetryDelays()
    assert [delays.next(0.0) for _ in range(N_RETRIES + 1)] == [0.0] * N_RETRIES + [None]
