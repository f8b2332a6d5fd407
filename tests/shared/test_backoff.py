import itertools
import random

from shared.backoff import jittered_delays


def first(n, seed=1):
    return list(itertools.islice(jittered_delays(1.0, 8.0, random.Random(seed)), n))


def test_delays_double_up_to_the_most_with_jitter_of_half():
    bounds = [1, 2, 4, 8, 8, 8]
    assert all(bound / 2 <= delay <= bound for delay, bound in zip(first(6), bounds, strict=True))


def test_peers_that_lost_the_same_server_do_not_come_back_together():
    assert first(3, seed=1) != first(3, seed=2)
