import json

import pytest

from lab.parts import overhead
from lab.parts.overhead import measure
from lab.parts.replay import ReplayTarget, Rows, Shares
from shared.llama.span import Span


@pytest.mark.parametrize("sampling", overhead.SAMPLINGS)
def test_right_drafts_are_accepted_whatever_the_sampling(sampling):
    """The first of the 23 steps reads the prompt; the others choose one token more than was drafted.

    Now and then the policy verifies one token less, to measure the cost.
    """
    n_rows = measure(1000, sampling, "all right", n_steps=3)["n_rows"]
    assert n_rows == pytest.approx((1 + 22 * (overhead.DEPTH + 1)) / 23, rel=0.03)


def test_logits_belong_to_the_positions_that_they_choose():
    rows = Rows(1000, seed=0)
    table = ReplayTarget(rows, 1000, 64, Shares()).decode([Span(0, 10, [5, 6, 7], 2)])[0]
    assert (table == [rows.at(12), rows.at(13)]).all()


def test_the_last_line_is_the_result(monkeypatch, capsys):
    monkeypatch.setattr(overhead, "VOCABULARIES", (1000,))
    monkeypatch.setattr(overhead, "SAMPLINGS", {"default": overhead.SAMPLINGS["default"]})
    overhead.main(["--quick"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["bench"] == "overhead"
    assert [row["drafts"] for row in result["rows"]] == list(overhead.DRAFTS)
    assert result["within_bounds"] is True
