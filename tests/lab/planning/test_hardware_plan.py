"""Predictions for hardware that is not here."""

import json
from dataclasses import replace

import pytest

from lab.planning.arrangements import Machines
from lab.planning.hardware_plan import (
    HardwarePlan,
    HardwareReport,
    PlaceForecast,
    SecondBack,
    rate_of,
    simulate_plan,
)
from lab.simulation.cell import Cell
from lab.simulation.hardware import H200_8B, H200_20GB, M2_ULTRA, RTX_4090, SPARK
from lab.simulation.places import LARGE_PLACES, SMALL_PLACES

ENGINE, CPU_1B, CPU_HALF_B, GPU_1B = SMALL_PLACES
_, CPU_8B, GPU_8B = LARGE_PLACES


@pytest.fixture(autouse=True)
def one_text(monkeypatch):
    monkeypatch.setattr("lab.planning.arrangements._N_SEEDS", 1)


class Computing:
    """Replaces the simulation: every cell gives `rate`. Keeps the cells."""

    def __init__(self, rate=10.0):
        self.cells = []
        self._rate = rate

    def __call__(self, cells):
        self.cells += cells
        return [self._rate] * len(cells)


def plan(hardware=M2_ULTRA, machines=Machines(), acceptance=None):  # noqa: B008 - frozen
    computing = Computing()
    return simulate_plan(hardware, machines, acceptance, computing), computing.cells


# Against the real thing: docs/performance.md, H200


@pytest.mark.parametrize(
    ("hardware", "alone", "with_back"), [(H200_8B, 313, 296), (H200_20GB, 108.5, 103)], ids=["4 GB", "20 GB"]
)
def test_an_h200_is_simulated_as_it_was_measured(hardware, alone, with_back):
    """The back was on the machine's CPU. The share of its right drafts is not known."""
    cell = Cell(hardware.steps, n_tokens=512, host=hardware.host)
    back = replace(CPU_HALF_B.cell(hardware, 0.3, 512), host=hardware.host)
    assert rate_of(cell) == pytest.approx(alone, rel=0.1)
    assert rate_of(back) == pytest.approx(with_back, rel=0.1)


# What is simulated


def test_each_draft_model_has_the_acceptances_that_are_usual_for_it():
    found, _ = plan()
    expected = {"0.5B": [0.5, 0.6, 0.7], "1B": [0.5, 0.6, 0.7], "8B": [0.7, 0.8]}
    assert {each.place.model: list(each.rates) for each in found.forecasts} == expected


def test_or_the_one_that_was_given():
    found, _ = plan(acceptance=0.9)
    assert {tuple(each.rates) for each in found.forecasts} == {(0.9,)}


def test_backs_are_as_far_away_and_as_fast_as_was_said():
    found, cells = plan(machines=Machines(round_trip_s=0.02, speed=2.0))
    assert {back.rtt_s for cell in cells for back in cell.backs} == {0.02}
    seconds = {each.place: each.token_s for each in found.forecasts}
    assert (seconds[CPU_8B], seconds[ENGINE]) == (0.040, M2_ULTRA.draft_1b_s)


def test_the_engine_s_own_time_is_charged_as_it_was_measured_there():
    _, cells = plan(H200_20GB)
    assert {cell.host for cell in cells} == {H200_20GB.host}


def test_what_does_not_fit_is_left_out():
    found, _ = plan(RTX_4090)
    assert LARGE_PLACES[0] not in {each.place for each in found.forecasts}


def test_where_no_back_gives_anything_there_is_no_second_one():
    found, _ = plan()
    assert found.second is None


def test_a_second_back_is_simulated_with_the_same_draft_model_and_with_another():
    cells = []

    def compute(asked):
        cells.extend(asked)
        return [1.0 + len(cell.backs) for cell in asked]

    second = simulate_plan(M2_ULTRA, Machines(), None, compute).second
    assert (second.same, second.other) == (1.5, 1.5)
    skills = [{back.skill.number for back in cell.backs} for cell in cells if len(cell.backs) == 2]
    assert skills == [{0}, {0, 1}]


# What is said


def report(hardware=M2_ULTRA, second=None):
    rates = {CPU_1B: {0.5: 12.0, 0.6: 15.9, 0.7: 17.0}, CPU_8B: {0.7: 11.0, 0.8: 11.9}}
    forecasts = [PlaceForecast(place, place.token_s, each) for place, each in rates.items()]
    return HardwareReport([HardwarePlan(hardware, 10.0, forecasts, second)], Machines(round_trip_s=0.02))


def test_it_is_said_that_nothing_was_measured_and_where_times_are_from():
    text = str(report())
    assert text.startswith("Simulated, not measured")
    assert "The round trip to a back takes 20 ms" in text
    assert "Source: llama.cpp#16894 (7B Q8_0, up to 4); assumed: T(1), and T(n) for n > 4." in text
    assert "Source: none is published; assumed: all" in str(report(SPARK))


def test_so_is_what_such_steps_leave_to_backs():
    assert "Steps take 100 ms or more" in str(report())


def test_rows_are_places_and_columns_how_often_drafts_are_right():
    lines = [" ".join(line.split()) for line in str(report()).splitlines()]
    assert "50% right 60% right 70% right 80% right" in lines
    assert "back on a CPU: 1B, 12 ms 12.0 (1.20) 15.9 (1.59) 17.0 (1.70)" in lines
    assert "back on a CPU: 8B, 80 ms 11.0 (1.10) 11.9 (1.19)" in lines


def test_why_cells_are_empty_is_said_only_if_some_are():
    said, whole = "\nA cell is empty if the acceptance is unusual for a draft model of this size.", report()
    assert said in str(whole)
    plan = whole.plans[0]
    assert said not in str(replace(plan, forecasts=plan.forecasts[:1]))


def test_a_back_that_is_too_slow_is_compared_with_a_faster_one():
    said = (
        "On the same CPU a 1B with an acceptance of 60% gives a speed-up of 1.59, an 8B with an acceptance "
        "of 80% gives a speed-up of 1.19."
    )
    assert said in str(report())


@pytest.mark.parametrize(("other", "advises"), [(1.1, True), (1.02, False)])
def test_what_a_second_machine_should_run_is_said(other, advises):
    second = SecondBack(PlaceForecast(GPU_1B, 0.003, {0.6: 15.0}), 1.01, other)
    text = str(report(second=second))
    assert "A second back beside the back on a GPU: 1B, 3 ms, adds 1 % with the same draft model" in text
    assert ("A second machine should run another draft model" in text) is advises


def test_json_has_the_same():
    (found,) = json.loads(report().to_json())["simulated"]
    assert (found["device"], found["prospect"], found["alone"]) == ("M2 Ultra, 70B Q8_0", "long", 10.0)
    assert found["step_ms"]["1"] == 118.0
    assert found["arrangements"][1]["tokens_per_second"] == {"0.7": 11.0, "0.8": 11.9}
