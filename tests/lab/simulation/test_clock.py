"""Simulated time, and messages under way."""

import pytest

from lab.simulation.clock import Link, VirtualClock


def test_events_happen_in_order_of_their_time():
    clock, seen = VirtualClock(), []
    clock.after(2.0, lambda: seen.append(("late", clock.now)))
    clock.after(1.0, lambda: seen.append(("early", clock.now)))
    clock.run(lambda: len(seen) == 2)
    assert seen == [("early", 1.0), ("late", 2.0)]


def test_events_of_one_moment_happen_in_the_order_in_which_they_were_asked_for():
    clock, seen = VirtualClock(), []
    for i in range(5):
        clock.after(1.0, lambda i=i: seen.append(i))
    clock.run(lambda: len(seen) == 5)
    assert seen == [0, 1, 2, 3, 4]


def test_time_stops_as_soon_as_it_is_finished():
    clock, seen = VirtualClock(), []
    clock.after(1.0, lambda: seen.append(1))
    clock.after(2.0, lambda: seen.append(2))
    clock.run(lambda: bool(seen))
    assert (seen, clock.now) == ([1], 1.0)


def test_without_anything_left_to_happen_it_says_so():
    with pytest.raises(RuntimeError, match="nothing is left"):
        VirtualClock().run(lambda: False)


def arrivals(n, delay_s, message_s):
    clock, seen = VirtualClock(), []
    link = Link(clock, delay_s, message_s, lambda message: seen.append((message, round(clock.now, 9))))
    for i in range(n):
        link.send(i)
    clock.run(lambda: len(seen) == n)
    return seen


def test_messages_take_turns_on_the_wire_and_travel_together():
    assert arrivals(3, 0.5, 0.1) == [(0, 0.6), (1, 0.7), (2, 0.8)]
