import json

import pytest

from bench import caches


def run(*arguments):
    caches.main(["--architectures", "llama", "--comparisons", "5", *arguments])


def test_both_ways_to_keep_cells_are_compared(capsys):
    run()
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [(row["cells"], row["n_compared"], row["n_wrong"]) for row in rows] == [
        ("one pool", 5, 0),
        ("per slot", 5, 0),
        ("one pool, cramped", 5, 0),
        ("per slot, cramped", 5, 0),
    ]


def test_a_wrong_row_is_a_failure(capsys):
    with pytest.raises(SystemExit) as status:
        run("--bound", "-1")
    assert status.value.code == 1
    assert '"n_wrong": 5' in capsys.readouterr().out
