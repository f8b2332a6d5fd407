"""The figures of a comparison."""

import pytest

from lab.measuring.contest import Run
from lab.measuring.measured_answer import MeasuredAnswer
from lab.measuring.questions import ChatQuestion
from lab.measuring.summary import BASELINE, summarize

STORY, LIST = ChatQuestion("stories", "s", 1), ChatQuestion("lists", "l", 2)


def run(way, repeat, seconds, question=STORY, text="t", **fields):
    return Run(way, repeat, question, MeasuredAnswer(text, 11, seconds, **fields))


def row(runs, way):
    return next(row for row in summarize("cell", runs) if row.way == way)


def test_tokens_per_second_are_the_median_of_the_repeats_without_the_first_token():
    got = row([run("x", 0, 1.0), run("x", 1, 2.0), run("x", 2, 10.0)], "x")
    assert (got.tokens_per_second, got.low, got.high) == (5, 1, 10)


def test_the_speedup_compares_within_each_repeat():
    """A machine that was twice as slow in the second repeat changes nothing."""
    runs = [run(BASELINE, 0, 2.0), run("x", 0, 1.0), run(BASELINE, 1, 4.0), run("x", 1, 2.0)]
    assert row(runs, "x").speedup == pytest.approx(2.0)
