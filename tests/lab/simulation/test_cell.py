"""Whole simulations of cases whose result is known."""

import dataclasses

import pytest

from lab.simulation.cell import Cell, simulate
from lab.simulation.machine import HostTime, StepTable
from lab.simulation.simulated_back import BackSpec
from lab.simulation.text import DraftSkill

FLAT = StepTable("flat", ((1, 0.05), (16, 0.05)))
STEEP = StepTable("steep", ((1, 0.05), (2, 0.1), (3, 0.15)))
GOOD = BackSpec(0.001, skill=DraftSkill(0.75))


def cell(steps, *backs, **fields):
    return Cell(steps, backs, n_tokens=192, n_text=128, **fields)


def test_alone_it_writes_one_token_per_step():
    assert simulate(cell(FLAT), "off") == pytest.approx(20, rel=0.02)


@pytest.mark.parametrize(
    ("steps", "skill", "times"),
    [(FLAT, 0.999, 7), (STEEP, 0.75, 0.97), (FLAT, 0.75, 2)],
    ids=["almost perfect drafts", "tokens at their full price", "tokens that are free"],
)
def test_adaptive_is_faster_by_what_drafts_are_worth(steps, skill, times):
    drafter = dataclasses.replace(GOOD, skill=DraftSkill(skill))
    assert simulate(cell(steps, drafter), "adaptive") > times * 20


@pytest.mark.parametrize(
    "useless",
    [{"skill": DraftSkill(0.75, honest=False)}, {"silent_from": 1.0}, {"silent_from": 0.0}, {"step_s": 0.5}],
)
def test_a_useless_back_costs_adaptive_next_to_nothing(useless):
    steps = StepTable("f16", ((1, 0.05), (2, 0.05), (3, 0.0525), (4, 0.065)))
    alone = simulate(cell(steps), "off")
    with_back = simulate(cell(steps, dataclasses.replace(GOOD, **useless)), "adaptive")
    assert with_back > 0.95 * alone


def test_the_same_cell_gives_the_same_outcome():
    assert simulate(cell(FLAT, GOOD), "adaptive") == simulate(cell(FLAT, GOOD), "adaptive")


def test_the_engine_s_own_time_is_charged():
    quick = StepTable("quick", ((1, 0.001), (16, 0.001)))
    alone, beside = cell(quick), cell(quick, dataclasses.replace(GOOD, silent_from=0.0))
    host = HostTime(step_s=0.0002, planning_s=0.0003)
    free = simulate(dataclasses.replace(alone, host=HostTime(0, 0, 0)), "off")
    charged = [simulate(dataclasses.replace(each, host=host), "off") for each in (alone, beside)]
    assert [round(free / each, 2) for each in charged] == [1.2, 1.5]
