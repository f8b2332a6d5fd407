"""The command: its tables and its last line."""

import json

import pytest

from bench import simulate
from lead.engine.speculation.constants import DEFAULTS


@pytest.fixture
def steps(tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps({"1": 50, "8": 52}))
    return path


def run(capsys, *arguments):
    simulate.main([*arguments, "--n-tokens", "64", "--jobs", "1"])
    return capsys.readouterr().out.splitlines()


def test_the_last_line_is_the_report(capsys, steps):
    lines = run(capsys, "--step-ms", str(steps), "--draft-ms", "2", "--rtt-ms", "1")
    report = json.loads(lines[-1])
    assert report["bench"] == "simulate"
    assert [(row["backs"], row["rtt_ms"]) for row in report["rows"]] == [(1, 1.0), (2, 1.0)]
    assert all(row["part"] == "gains" and row["speedup"] > 1.3 for row in report["rows"])


def test_a_constant_of_speculation_can_be_varied(capsys, steps):
    arguments = ["--step-ms", str(steps), "--rtt-ms", "1"]
    usual, changed = (run(capsys, *arguments, *more) for more in ([], ["--constant", "max_ahead=1"]))
    assert json.loads(changed[-1])["rows"] != json.loads(usual[-1])["rows"]


def test_a_draft_model_in_the_engine_is_compared_with_the_best_depth():
    rows = simulate._inline(quick=True, run=simulate._Run(48, 1, DEFAULTS))
    assert {row["cost"] for row in rows} == {0.02, 0.3}
    assert all(row["to_best"] > 0.7 and row["useless"] > 0.7 for row in rows)


def test_a_back_on_the_lead_s_machine_is_compared_with_the_best_depth():
    (row,) = simulate._contention(quick=True, run=simulate._Run(48, 1, DEFAULTS))
    assert (row["cost"], row["rtt_ms"]) == (0.3, 0.2)
    assert row["to_best"] > 0.7
