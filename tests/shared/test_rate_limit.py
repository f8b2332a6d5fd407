import itertools
import random

from shared.rate_limit import Backoff, Bucket


def test_a_burst_is_allowed_and_then_the_rate():
    bucket = Bucket(rate=2.0, burst=3.0, now=10.0)
    assert [bucket.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(10.5), bucket.take(10.5)] == [True, False]


def test_no_more_than_a_burst_is_saved_up():
    bucket = Bucket(rate=2.0, burst=3.0, now=0.0)
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_what_is_refused_does_not_count():
    bucket = Bucket(rate=1.0, burst=1.0, now=0.0)
    bucket.take(0.0)
    assert [bucket.take(0.4), bucket.take(0.8), bucket.take(1.0)] == [False, False, True]


def test_it_says_how_long_to_wait_for_the_next():
    bucket = Bucket(rate=2.0, burst=1.0, now=0.0)
    assert bucket.wait(0.0) == 0
    bucket.take(0.0)
    assert (bucket.wait(0.0), bucket.wait(0.25), bucket.wait(9.0)) == (0.5, 0.25, 0)


def test_draining_counts_what_is_not_allowed_but_makes_no_debts():
    bucket = Bucket(rate=1.0, burst=3.0, now=0.0)
    bucket.drain(0.0, 10)
    assert [bucket.left(0.0), bucket.left(2.0)] == [0, 2]


def first(n, seed=1):
    return list(itertools.islice(Backoff(1.0, 8.0, random.Random(seed)), n))


def test_delays_double_up_to_the_most_with_jitter_of_half():
    bounds = [1, 2, 4, 8, 8, 8]
    assert all(bound / 2 <= delay <= bound for delay, bound in zip(first(6), bounds, strict=True))


def test_peers_that_lost_the_same_server_do_not_come_back_together():
    assert first(3, seed=1) != first(3, seed=2)


def test_after_a_success_the_delays_begin_anew():
    delays = Backoff(1.0, 8.0, random.Random(1), at_once=True)
    assert [next(delays) > 0 for _ in range(3)] == [False, True, True]
    delays.reset()
    assert next(delays) == 0
