import pytest

from bench.neighbour import GRAMMARS, Latencies, _row
from lead.grammar import check_grammar, gbnf_to_lark
from lead.settings.limits import RequestLimits
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target


@pytest.mark.parametrize("text", [text for text in GRAMMARS.values() if text])
def test_every_costly_grammar_is_one_that_a_lead_accepts(text):
    vocabulary = Vocabulary.load(builtin_target())
    check_grammar(gbnf_to_lark(text, {}.get, RequestLimits()), vocabulary, "grammar")


def test_the_ratio_is_that_to_as_many_clients_without_a_grammar():
    measured = {
        ("none", 3): Latencies([0.1, 0.2, 0.3], [0.01]),
        ("costly", 3): Latencies([0.3, 0.5, 0.4], [0.01, 0.09, 0.02]),
    }
    row = _row(measured, "costly", 3)
    assert row["first_ms"] == pytest.approx(400)
    assert row["ratio"] == pytest.approx(2)
    assert row["worst_between_ms"] == pytest.approx(90)
