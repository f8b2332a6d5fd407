"""The engine with a drafter that knows the text."""

import json

import pytest

from bench.known_text import bound, main
from tests.conftest import more


def test_the_bound_is_reached_at_the_best_depth():
    seconds = {1: 1.0, 2: 1.1, 3: 1.5, 4: 9.0}
    assert bound([0, 1, 0, 7], seconds, most=3) == pytest.approx(1.5 / 1.1)
    assert bound([2, 5], seconds, most=3) == pytest.approx(3 / 1.5)
    assert bound([0, 0], seconds, most=3) == 1.0


@pytest.mark.parametrize("architecture", ["jamba", more("llama"), more("qwen35")])
def test_each_rate_has_a_row(tiny_model, capsys, architecture):
    main(["--model", str(tiny_model(architecture)), "--tokens", "12", "--repeats", "1", "--sequences", "2"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["rate"] for row in result["rows"]] == [0.8, 0.0]
    assert all(row["plain"] > 0 and row["drafted"] > 0 for row in result["rows"])
