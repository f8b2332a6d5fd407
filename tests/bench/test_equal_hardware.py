"""A draft model in the lead beside llama-server's."""

import pytest

from bench.client import Measurement
from bench.contest import Run
from bench.equal_hardware import LEAD, compare
from bench.prompts import Prompt

PROMPT = Prompt("stories", "Tell a story.", 1)


def run(way, n_tokens, seconds):
    return Run(way, 0, PROMPT, Measurement("", n_tokens, seconds))


def test_a_rate_is_that_of_all_answers_together():
    (row,) = compare([run(LEAD, 11, 1.0), run(LEAD, 31, 1.0)])
    assert (row["tokens_per_second"], row["low"], row["high"]) == (20.0, 10.0, 30.0)


def test_each_way_is_compared_with_the_lead():
    rows = compare([run(LEAD, 31, 1.0), run("llama-server alone", 21, 1.0)])
    assert {row["way"]: row["lead_to_this"] for row in rows} == {
        LEAD: 1.0,
        "llama-server alone": pytest.approx(1.5),
    }


def test_an_answer_of_one_token_says_nothing():
    (row,) = compare([run(LEAD, 11, 1.0), run(LEAD, 1, 0.0)])
    assert row["tokens_per_second"] == 10.0
