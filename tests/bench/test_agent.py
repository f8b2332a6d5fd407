"""An agent's loop with and without texts seen before."""

import json

import pytest

from bench.agent import main


@pytest.mark.usefixtures("_one_thread")
def test_each_kind_has_a_row(tiny_model, capsys):
    main(
        ["--model", str(tiny_model("llama")), "--requests", "2", "--tokens", "8", "--repeats", "1", "--plain"]
    )
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["kind"] for row in result["rows"]] == ["agent", "stories", "shuffled"]
    assert all(row[way] > 0 for row in result["rows"] for way in ("plain", "ngram", "suffix"))
