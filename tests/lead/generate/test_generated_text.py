"""What a text took is told in some lines."""

import pytest

from lead.generate.generated_text import GeneratedText, compare, report
from lead.generation.answer_stats import AnswerStats


def outcome(text="one two", seconds=2.0, **stats):
    counts = {"n_prompt": 3, "n_cached": 0, "n_generated": 21, "n_first": 1} | stats
    return GeneratedText(text, AnswerStats(**counts, prompt_seconds=0.5, generation_seconds=seconds))


def test_a_text_without_drafts():
    assert report(outcome()) == (
        "   prompt  3 tokens in 0.50 s\ngenerated  21 tokens in 2.00 s, 10.0 tokens/s"
    )


def test_a_text_with_drafts():
    assert "drafts  6 of 8 tokens accepted (75%)" in report(outcome(n_drafted=8, n_accepted=6))


@pytest.mark.parametrize("n", [0, 1])
def test_a_text_that_is_too_short_has_no_speed(n):
    assert "tokens/s" not in report(outcome(n_generated=n, n_first=n, seconds=0.0))


def test_equal_texts_are_compared():
    text = compare(outcome(), outcome(seconds=1.0, n_drafted=8, n_accepted=6), "small")
    assert text.splitlines() == [
        "     plain  21 tokens in 2.50 s, 10.0 tokens/s",
        "with small  21 tokens in 1.50 s, 20.0 tokens/s",
        "    drafts  6 of 8 tokens accepted (75%)",
        "  speed-up  2.00",
        " same text  yes, every character",
    ]


def test_a_difference_is_shown():
    assert "NO: from character 6 on 'hree' with drafts, and 'wo' without" in compare(
        outcome("one two"), outcome("one three"), "small"
    )


def test_a_comparison_without_drafts_says_so():
    text = compare(outcome(n_generated=1), outcome(n_generated=1), "small")
    assert "none were worth verifying" in text
    assert "too short to tell" in text
