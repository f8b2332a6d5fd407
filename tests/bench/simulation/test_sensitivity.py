"""Constants of speculation can be varied, and their effect is shown."""

from dataclasses import fields

import pytest

from bench.simulation import sensitivity as module
from bench.simulation.sensitivity import changed, sensitivity
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from shared.errors import ConfigError


def test_without_settings_the_constants_are_the_defaults():
    assert changed([]) == DEFAULTS


def test_constants_are_changed_by_name():
    constants = changed(["explore_every=64", "speedup_decay=0.9", "confidence_edges=0.2,0.8"])
    assert (constants.explore_every, constants.speedup_decay) == (64, 0.9)
    assert constants.confidence_edges == (0.2, 0.8)


@pytest.mark.parametrize("setting", ["no_such=1", "explore_every", "explore_every=often", "=1"])
def test_a_setting_that_makes_no_sense_is_refused(setting):
    with pytest.raises(ConfigError, match="--constant"):
        changed([setting])


def test_halving_a_decay_halves_its_memory():
    assert module._halved("speedup_decay", 0.98) == pytest.approx(0.96)
    assert module._doubled("speedup_decay", 0.98) == pytest.approx(0.99)


def test_a_share_stays_below_one():
    assert module._doubled("long_run_weight", 0.75) == pytest.approx(0.875)


def test_every_constant_has_a_row_with_its_worst_cells(monkeypatch):
    one_cell = dict([next(iter(module.cells(32).items()))])
    monkeypatch.setattr(module, "cells", lambda _n_tokens: one_cell)
    rows = sensitivity(32, n_jobs=1)
    names = [field.name for field in fields(SpeculationConstants)]
    assert [row["constant"] for row in rows] == ["(other jitter)", *names]
    assert all(row["halved"] > 0 and row["doubled_worst_cell"] in one_cell for row in rows)
