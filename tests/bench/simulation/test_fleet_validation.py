"""Measured runs of two leads, predicted."""

import json

import pytest

from bench import leads
from bench.simulation import fleet_validation
from bench.simulation.calibration import Calibration
from shared.errors import ConfigError

CALIBRATION = Calibration({1: 50.0, 2: 50.0, 8: 60.0}, 5.0, 0.2, 0.8, 20.0, 40.0, 1.0, 1.0)


@pytest.fixture
def result(tmp_path):
    rows = [{"backs": case, "tokens_per_second": 20.0} for case in leads.CASES]
    path = tmp_path / "leads.json"
    path.write_text(json.dumps({"calibration": CALIBRATION.as_json(), "rows": rows}))
    return path


@pytest.fixture
def _short(monkeypatch):
    monkeypatch.setattr(fleet_validation, "_N_SEEDS", 1)
    monkeypatch.setattr(fleet_validation, "_N_HALVINGS", 4)
    monkeypatch.setattr(fleet_validation, "_WARM_UP_S", 1.0)
    monkeypatch.setattr(fleet_validation, "_SECONDS", 5.0)


@pytest.mark.usefixtures("_short")
def test_each_measured_case_is_predicted(result):
    rows = {row["backs"]: row for row in fleet_validation.validate(result)}
    assert rows[leads.NONE]["ratio"] == pytest.approx(1.0, rel=0.1)  # two leads share what one has alone
    assert min(rows[case]["predicted"] for case in leads.CASES[1:]) > 1.3 * rows[leads.NONE]["predicted"]


@pytest.mark.usefixtures("_short")
def test_better_drafts_explain_a_faster_lead():
    slower = Calibration.of_json(CALIBRATION.as_json() | {"with_back": 25.0})
    assert fleet_validation.fitted_acceptance(slower) < fleet_validation.fitted_acceptance(CALIBRATION)


def test_a_result_without_calibration_is_refused(tmp_path):
    path = tmp_path / "leads.json"
    path.write_text(json.dumps({"rows": []}))
    with pytest.raises(ConfigError, match="--calibrate"):
        fleet_validation.validate(path)


def test_a_lead_is_as_fast_as_it_was_alone_whatever_its_model_took_elsewhere():
    assert CALIBRATION.steps.first == pytest.approx(1 / 20)
    slower = Calibration.of_json(CALIBRATION.as_json() | {"alone": 10.0})
    assert (slower.steps.seconds(1), slower.steps.seconds(8)) == pytest.approx((0.1, 0.11))
    faster = Calibration.of_json(CALIBRATION.as_json() | {"alone": 40.0})
    assert (faster.steps.seconds(1), faster.steps.seconds(8)) == pytest.approx((0.025, 0.03))
