"""The display of a generated text, and the lines about it."""

import io

import pytest

from lead.engine_client.answer_stats import AnswerStats
from lead.engine_client.assembler import TextToken
from lead.generate.generated_text import GeneratedText, TextOutput, compare, report


def outcome(text="one two", seconds=2.0, **stats):
    counts = {"n_prompt": 3, "n_cached": 0, "n_generated": 21, "n_first": 1} | stats
    return GeneratedText(text, AnswerStats(**counts, prompt_seconds=0.5, generation_seconds=seconds))


def test_a_text_without_drafts():
    assert report(outcome()) == (
        "   prompt  3 tokens in 0.50 s\ngenerated  21 tokens in 2.00 s, 10.0 tokens/s"
    )


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
    assert "NO: from character 6 on, 'hree' with drafts, and 'wo' without" in compare(
        outcome("one two"), outcome("one three"), "small"
    )


def test_a_comparison_without_drafts_says_so():
    text = compare(outcome(n_generated=1), outcome(n_generated=1), "small")
    assert "no draft was worth verifying" in text
    assert "too short to compare" in text


# On standard output

TOKENS = [TextToken(1, "plain", None), TextToken(2, "\x1b[2Jdrafted", "local"), TextToken(3, "", "local")]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def written(out):
    TextOutput(out).write_tokens(TOKENS)
    return out.getvalue()


def test_a_pipe_gets_the_text_as_it_is():
    assert written(io.StringIO()) == "plain\x1b[2Jdrafted"


def test_a_terminal_gets_accepted_tokens_in_color():
    assert written(Terminal()) == "plain\x1b[32m\u241b[2Jdrafted\x1b[0m"


def test_color_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert written(Terminal()) == "plain\u241b[2Jdrafted"


def test_characters_that_an_encoding_lacks_are_replaced():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    TextOutput(out).write("Hé")
    out.flush()
    assert out.buffer.getvalue() == b"H?"
