import pytest

from bench.demo import Result, _summarize
from chat.answer import GenerationStats

ALONE = Result(["a", "b"], GenerationStats(n_tokens=100, seconds=10.0))
TOGETHER = Result(["a", "b"], GenerationStats(n_tokens=100, seconds=4.0, n_drafted=80, n_accepted=60))


def test_the_summary_compares_the_speeds():
    summary = _summarize(ALONE, TOGETHER)
    assert (summary["tokens_per_second_alone"], summary["tokens_per_second_with_back"]) == (10, 25)
    assert summary["speedup"] == pytest.approx(2.5)


def test_the_summary_has_the_accepted_share():
    assert _summarize(ALONE, TOGETHER)["accepted_fraction"] == pytest.approx(0.75)


def test_one_different_character_is_not_the_same_text(capsys):
    other = Result(["a", "c"], TOGETHER.stats)
    assert _summarize(ALONE, other)["same_text"] is False
    assert "NO" in capsys.readouterr().out


def test_no_drafts_at_all_are_a_share_of_nothing():
    assert _summarize(ALONE, ALONE)["accepted_fraction"] == 0
