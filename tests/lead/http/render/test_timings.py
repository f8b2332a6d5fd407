"""Rates mean the same with drafts and without."""

from lead.generation.answer_stats import AnswerStats
from lead.http.render.timings import timings

REGENERATED = AnswerStats(
    n_prompt=50, n_cached=49, n_generated=40, n_first=17, prompt_seconds=0.0125, generation_seconds=0.5
)
"""The prompt was in the cache, so the first step had a draft."""


def test_tokens_of_the_first_step_count_for_the_prompt():
    found = timings(REGENERATED)
    assert (found["predicted_n"], found["predicted_ms"], found["predicted_per_second"]) == (40, 500.0, 46.0)
    assert found["predicted_per_token_ms"] == 500.0 / 23
    assert (found["prompt_n"], found["prompt_ms"], found["prompt_per_second"]) == (1, 12.5, 80.0)


def test_an_answer_of_one_step_has_no_rate():
    found = timings(AnswerStats(50, 49, n_generated=3, n_first=3, prompt_seconds=0.0125))
    assert found["predicted_ms"] == found["predicted_per_second"] == found["predicted_per_token_ms"] == 0
