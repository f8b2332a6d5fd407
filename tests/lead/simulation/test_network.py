"""Messages under way."""

from lead.simulation.clock import VirtualClock
from lead.simulation.network import Link


def arrivals(n, delay_s, message_s):
    clock, seen = VirtualClock(), []
    link = Link(clock, delay_s, message_s, lambda message: seen.append((message, round(clock.now, 9))))
    for i in range(n):
        link.send(i)
    clock.run(lambda: len(seen) == n)
    return seen


def test_a_message_arrives_after_its_delay():
    assert arrivals(1, 0.5, 0.0) == [(0, 0.5)]


def test_messages_take_turns_on_the_wire_and_travel_together():
    assert arrivals(3, 0.5, 0.1) == [(0, 0.6), (1, 0.7), (2, 0.8)]
