"""T(n) of the simulated lead."""

import json

import pytest

from lead.simulation.step_table import StepTable
from shared.errors import ConfigError

TABLE = StepTable.of_milliseconds("test", {1: 10.0, 2: 12.0, 4: 8.0, 8: 16.0})


@pytest.mark.parametrize(("n", "ms"), [(1, 10), (2, 12), (3, 10), (4, 8), (6, 12), (8, 16), (10, 20)])
def test_between_and_beyond_its_points_it_is_straight(n, ms):
    assert TABLE.seconds(n) == pytest.approx(ms / 1000)


def test_beyond_a_falling_end_it_stays():
    assert StepTable.of_milliseconds("test", {1: 10, 2: 8}).seconds(5) == pytest.approx(0.008)


def test_one_point_is_the_same_for_all():
    assert StepTable.of_milliseconds("test", {1: 10}).seconds(7) == 0.01


def test_ratios_are_of_the_first():
    assert StepTable.of_ratios("test", 50, 1, 1.5).points == ((1, 0.05), (2, 0.075))


@pytest.mark.parametrize("wrap", [lambda table: table, lambda table: {"step_ms": table, "policy": "off"}])
def test_a_file_may_be_the_table_or_what_the_lead_reports(tmp_path, wrap):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(wrap({"2": 12, "1": 10})))
    assert StepTable.read(path) == StepTable("mine", ((1, 0.01), (2, 0.012)))


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"a": 1}', '{"2": 1}', '{"1": 0}', '{"1": -1}', '{"1": null}', '{"1": Infinity}']
)
def test_a_bad_file_is_refused(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="bad"):
        StepTable.read(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="none"):
        StepTable.read(tmp_path / "none.json")
