import pytest

from bench.demo import Comparison, Result, _summarize
from chat.answer import GenerationStats

ALONE = Result(["a", "b"], GenerationStats(n_tokens=100, seconds=10.0))
SAME = Comparison(True)
TOGETHER = Result(["a", "b"], GenerationStats(n_tokens=100, seconds=4.0, n_drafted=80, n_accepted=60))


def test_the_summary_compares_the_speeds():
    summary = _summarize(ALONE, TOGETHER, SAME)
    assert (summary["tokens_per_second_alone"], summary["tokens_per_second_with_back"]) == (10, 25)
    assert summary["speedup"] == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("comparison", "same", "words"),
    [
        (SAME, True, "yes, every character"),
        (Comparison(False), False, "NO"),
        (Comparison(None, "no --exact here"), None, "not compared: no --exact here"),
    ],
)
def test_texts_are_compared_in_exact_mode(comparison, same, words, capsys):
    assert _summarize(ALONE, TOGETHER, comparison)["same_text"] is same
    assert words in capsys.readouterr().out
