"""How fast leads are, between what was simulated."""

import numpy as np
import pytest

from bench.simulation import lead_speeds
from bench.simulation.fleet_spec import FleetSpec
from bench.simulation.lead_speeds import LeadSpeeds
from bench.simulation.scenarios import F16
from lead.simulation.simulated_back import BackSpec
from tests.bench.simulation.fleets import speeds


def generated(n_running, power):
    return speeds().at(np.array([0]), np.array([n_running]), np.array([power])).generated[0]


@pytest.mark.parametrize(
    ("n_running", "power", "expected"),
    [(0, 1.0, 0), (1, 0.0, 10), (1, 0.75, 17.5), (3, 0.0, 30), (2, 9.0, 40)],
)
def test_speeds_are_interpolated(n_running, power, expected):
    assert generated(n_running, power) == pytest.approx(expected)


def test_a_back_gains_what_it_adds_to_one_sequence():
    assert speeds().gain(0) == pytest.approx(10)


def test_a_back_is_enough_for_as_many_sequences_as_gain_half_each():
    assert speeds().sequences_per_back() == 2


def test_the_exact_planner_fills_the_table(monkeypatch):
    monkeypatch.setattr(lead_speeds, "POWERS", (0.0, 0.5, 1.0))
    monkeypatch.setattr(lead_speeds, "_WARM_UP_S", 1.0)
    monkeypatch.setattr(lead_speeds, "_SECONDS", 4.0)
    monkeypatch.setattr(lead_speeds, "_N_SEEDS", 1)
    table = LeadSpeeds.simulate(FleetSpec(F16, BackSpec(0.01), 1, 1, n_slots=2), n_jobs=1)
    alone, half, whole = table.values[0, 1, :, 0]
    assert table.n_running == (0, 1, 2)
    assert alone < half < whole
    assert (table.values[0, 0] == 0).all()
