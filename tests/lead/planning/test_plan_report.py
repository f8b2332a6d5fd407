"""What is said of measurements and predictions."""

import json
from dataclasses import replace

import pytest

from lead.engine.commands import DRAFT_MODEL
from lead.planning.arrangements import Arrangement, SpeedForecast
from lead.planning.measurements import AcceptanceRate, DrafterTimes, EngineTimes, SplitTimes
from lead.planning.plan_report import PlanReport

SPLIT = SplitTimes((0, 1, 2), (3,), {1: 0.06}, 0.002, 1.1, 1.5)
ENGINE = EngineTimes(
    {1: 0.05, 4: 0.055, 8: 0.08}, 0.0, {DRAFT_MODEL: DrafterTimes(0.005, 0.001, 0.1, AcceptanceRate(60, 80))}
)


@pytest.fixture
def report():
    forecasts = [
        SpeedForecast(Arrangement("none"), 20.0, 20.0, 20.0),
        SpeedForecast(Arrangement("engine"), 40.0, 35.0, 44.0),
        SpeedForecast(Arrangement("split", SPLIT), 30.0, 28.0, 31.0),
        SpeedForecast(Arrangement("remote", round_trip_s=0.0003), 39.0, 28.0, 31.0),
    ]
    commands = [["lead"], ["lead --draft-model x"], ["lead --back x"], ["lead --host", "back"]]
    return PlanReport(ENGINE, [SPLIT], forecasts, commands, ["A remark."], ["Once"])


def test_the_fastest_is_named_with_its_command(report):
    text = str(report)
    assert "Fastest here: draft model in the engine, 40.0 tokens/s, 2.00 times as fast as without" in text
    assert text.endswith("\n  lead --draft-model x")
    assert "Faster still" not in text


def test_remarks_come_before_the_figures_that_they_are_about(report):
    text = str(report)
    assert text.index("A remark.") < text.index("arrangement  ") < text.index("Fastest here")


def test_a_back_elsewhere_is_named_beside_it_if_it_is_faster(report):
    forecasts = [*report.forecasts[:3], SpeedForecast(report.forecasts[3].arrangement, 50.0, 40.0, 60.0)]
    text = str(replace(report, forecasts=forecasts))
    assert "Fastest here: draft model in the engine" in text
    assert "Faster still: back on another machine, 0.3 ms away, 50.0 tokens/s" in text
    assert text.endswith("\n  lead --host\n  back")


def test_each_arrangement_has_a_row(report):
    rows = [
        line.split() for line in str(report).splitlines() if line.endswith(("1.00", "2.00", "1.50", "1.95"))
    ]
    assert [row[-4:] for row in rows] == [
        ["20.0", "20.0", "20.0", "1.00"],
        ["40.0", "35.0", "44.0", "2.00"],
        ["30.0", "28.0", "31.0", "1.50"],
        ["39.0", "28.0", "31.0", "1.95"],
    ]
    assert "back on 1 core (3), lead on 0-2" in str(report)
    assert "back on another machine, 0.3 ms away" in str(report)


def test_it_says_how_certain_the_acceptance_is(report):
    assert "60 of 80 were right: 75%, and with a confidence of 95 % between 65% and 83%." in str(report)


def test_what_was_measured_is_said(report):
    text = str(report)
    assert "A step of one token takes 50 ms, 1.10 times as long with 4 and 1.60 times as long with 8." in text
    assert "The draft model takes 5 ms for a token, 0.100 of that" in text
    assert "while both compute 1.10 and 1.50 times as long" in text


def test_json_has_the_same(report):
    found = json.loads(report.to_json())
    assert found["fastest"] == "draft model in the engine"
    assert [row["tokens_per_second"] for row in found["arrangements"]] == [20.0, 40.0, 30.0, 39.0]
    assert found["arrangements"][3]["commands"] == ["lead --host", "back"]
    assert found["engine"]["drafters"]["draft_model"]["acceptance"] == {"n_right": 60, "n_positions": 80}
    assert found["texts"] == ["Once"]
