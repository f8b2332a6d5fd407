"""Conversations in turns, by way and turn."""

import pytest

from bench.conversations import Turn, read, summarize


def turn(way, number, seconds, n_read=10):
    return Turn(way, number, 100, n_read, 50.0, 20.0, seconds)


def test_a_turn_is_read_from_the_timings():
    timings = {
        "cache_n": 90,
        "prompt_n": 10,
        "prompt_ms": 500.0,
        "predicted_n": 5,
        "predicted_ms": 250.0,
        "predicted_per_second": 20.0,
    }
    assert read("lead", 2, timings) == Turn("lead", 2, 105, 10, 500.0, 20.0, 0.75)


def test_each_turn_is_the_median_of_all_conversations():
    (row,) = summarize([turn("lead", 1, seconds) for seconds in (1.0, 2.0, 9.0)])
    assert (row["turn"], row["seconds"], row["lead_to_this"]) == (1, 2.0, 1.0)


def test_ways_are_compared_with_the_lead_turn_by_turn():
    rows = summarize(
        [
            turn("lead", 1, 1.0),
            turn("lead", 2, 2.0),
            turn("llama-server", 1, 3.0),
            turn("llama-server", 2, 3.0),
        ]
    )
    ratios = {(row["way"], row["turn"]): row["lead_to_this"] for row in rows}
    assert ratios["llama-server", 1] == pytest.approx(3.0)
    assert ratios["llama-server", 2] == pytest.approx(1.5)
