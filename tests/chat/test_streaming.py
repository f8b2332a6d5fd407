"""How long a client waits for a server that is not ready; whole sessions that wait: test_repl.py."""

from chat.streaming import LONGEST_DELAY_S, N_RETRIES, retry_delay


def test_delays_double_from_a_second_up_to_a_limit_and_end():
    assert [retry_delay(n, None) for n in range(N_RETRIES + 1)] == [1, 2, 4, 8, 16, LONGEST_DELAY_S, None]
    assert [retry_delay(0, retry_after) for retry_after in (0.0, 5.0, 1e9)] == [0.0, 5.0, LONGEST_DELAY_S]
