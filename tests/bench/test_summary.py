import pytest

from bench.client import Measurement
from bench.contest import Run
from bench.prompts import Prompt
from bench.summary import BASELINE, summarize, tokens_per_second

STORY, LIST = Prompt("stories", "s", 1), Prompt("lists", "l", 2)


def run(way, repeat, seconds, prompt=STORY, text="t", **fields):
    return Run(way, repeat, prompt, Measurement(text, 11, seconds, **fields))


def row(runs, way, **options):
    return next(row for row in summarize("cell", runs, **options) if row.way == way)


def test_the_first_token_takes_no_time_and_does_not_count():
    assert tokens_per_second([Measurement("", 11, 1.0), Measurement("", 21, 2.0)]) == 10


def test_tokens_per_second_are_the_median_of_the_repeats():
    runs = [run("x", 0, 1.0), run("x", 1, 2.0), run("x", 2, 10.0)]
    got = row(runs, "x")
    assert (got.tokens_per_second, got.low, got.high) == (5, 1, 10)


def test_the_speedup_compares_within_each_repeat():
    """A machine that was twice as slow in the second repeat changes nothing."""
    runs = [run(BASELINE, 0, 2.0), run("x", 0, 1.0), run(BASELINE, 1, 4.0), run("x", 1, 2.0)]
    assert row(runs, "x").speedup == pytest.approx(2.0)


def test_depth_and_acceptance_are_per_step():
    """Ten tokens after the first, six of them drafted: four steps."""
    got = row([run("x", 0, 1.0, n_drafted=8, n_accepted=6)], "x")
    assert (got.mean_depth, got.accepted_per_step, got.accepted_share) == (2.0, 1.5, 0.75)


def test_same_texts_are_counted_per_prompt_and_repeat():
    runs = [
        run(BASELINE, 0, 1.0, STORY, "a"),
        run(BASELINE, 0, 1.0, LIST, "b"),
        run("x", 0, 1.0, STORY, "a"),
        run("x", 0, 1.0, LIST, "c"),
    ]
    got = row(runs, "x")
    assert (got.n_same_text, got.n_texts) == (1, 2)


def test_waiting_is_a_share_of_the_time_told_of():
    runs = [run("x", 0, 2.0, wait_seconds=0.5), run("x", 1, 2.0, wait_seconds=0.5)]
    assert row(runs, "x").wait_share == 0.25
