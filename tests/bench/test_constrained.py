import json

import pytest

from bench import constrained


@pytest.mark.parametrize("name", constrained.grammars())
def test_each_grammar_is_measured_at_the_lead_and_at_a_back(capsys, name):
    constrained.main(["--grammar", name, "--tokens", "10", "--json"])
    costs = json.loads(capsys.readouterr().out)
    assert [(cost["grammar"], cost["sampling"], cost["error"]) for cost in costs] == [
        (name, "greedy", None),
        (name, "default", None),
    ]
    assert all(cost["refused_us"] > 0 and cost["lead"] > 0 and cost["back"] > 0 for cost in costs)


def test_the_table_names_the_grammars(capsys):
    constrained.main(["--grammar", "flat", "--tokens", "5"])
    assert "flat" in capsys.readouterr().out
