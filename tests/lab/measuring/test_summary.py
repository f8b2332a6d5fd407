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


@pytest.mark.parametrize(("seconds", "is_disturbed"), [(1.0, False), (0.55, False), (0.4, True)])
def test_a_speedup_above_what_accepted_tokens_allow_means_a_disturbed_measurement(seconds, is_disturbed):
    """Five of ten tokens were accepted in five steps, so drafts double the speed at best."""
    drafted = run("x", 0, seconds, n_drafted=8, n_accepted=5)
    assert row([run(BASELINE, 0, 1.0), drafted], "x").is_disturbed is is_disturbed


def test_without_drafts_there_is_nothing_to_explain_a_speedup():
    assert row([run(BASELINE, 0, 1.0), run("x", 0, 0.5)], "x").is_disturbed
    assert not row([run("x", 0, 0.5)], "x").is_disturbed  # compared with nothing


def test_answers_that_one_step_verified_whole_have_a_rate_of_accepted_tokens():
    assert row([run("x", 0, 1.0, n_drafted=10, n_accepted=10)], "x").accepted_per_step == 10
