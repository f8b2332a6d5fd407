"""The command: its tables and its last line."""

import json

import pytest

from bench import simulate
from bench.simulation.contest import ADAPTIVE, BOUND, contest
from bench.simulation.scenarios import read_table
from lead.engine.speculation.constants import DEFAULTS
from lead.simulation.cell import Cell
from lead.simulation.hardware import H200_8B, OFFLOADED
from lead.simulation.machine import StepTable
from lead.simulation.places import SMALL_PLACES
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill
from shared.errors import ConfigError


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


@pytest.mark.parametrize("wrap", [lambda table: table, lambda table: {"step_ms": table, "policy": "off"}])
def test_a_file_may_be_the_table_or_what_the_lead_reports(tmp_path, wrap):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(wrap({"2": 12, "1": 10})))
    assert read_table(path) == StepTable("mine", ((1, 0.01), (2, 0.012)))


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"a": 1}', '{"2": 1}', '{"1": 0}', '{"1": -1}', '{"1": null}', '{"1": Infinity}']
)
def test_a_bad_file_is_refused(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="bad"):
        read_table(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="none"):
        read_table(tmp_path / "none.json")


def test_the_instant_drafter_is_a_bound():
    steps, back = StepTable("flat", ((1, 0.05), (16, 0.05))), BackSpec(0.001, 0.02, DraftSkill(0.75))
    (result,) = contest([Cell(steps, (back,), n_tokens=192, n_text=128)], [ADAPTIVE, BOUND[0]], 1)
    real, bound = result.outcomes.values()
    assert bound.tokens_per_second > real.tokens_per_second


def test_hardware_that_is_not_here_is_compared_by_where_the_draft_model_runs():
    run = simulate._Run(32, 1, DEFAULTS)
    row = simulate._placed(OFFLOADED, 0.7, SMALL_PLACES, run)
    assert all(row[each.name] > 1 for each in SMALL_PLACES)
    short = simulate._placed(H200_8B, 0.7, SMALL_PLACES, run)
    assert short["CPU 12 ms"] is None, "far slower than a step: not simulated"
    row = simulate._without_gain(H200_8B, run)
    assert all(0.8 < row[each] < 1.2 for each in row.keys() - {"device"})
