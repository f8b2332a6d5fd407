"""The tables and the last line of the command."""

import dataclasses
import json

import pytest

from lab.parts import simulate
from lab.simulation.hardware import H200_8B, OFFLOADED
from lead.engine.speculation.constants import DEFAULTS
from shared.errors import ConfigError


def test_where_the_draft_model_runs_decides(capsys, monkeypatch):
    monkeypatch.setattr(simulate, "PRINCIPAL", (OFFLOADED, H200_8B))
    simulate.main(["--n-tokens", "32", "--jobs", "1"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    small, _, without_gain = dict.fromkeys(row["part"] for row in report["rows"])
    rows = {(row["part"], row["device"]): row for row in report["rows"] if row.get("right", 0.7) == 0.7}
    slow, short = rows[small, OFFLOADED.title], rows[small, H200_8B.title]
    assert all(slow[place] > 1 for place in ("engine", "CPU 12 ms", "CPU 4 ms", "GPU 3 ms"))
    assert "CPU 12 ms" not in short, "far slower than a step: not simulated"
    useless = rows[without_gain, H200_8B.title]
    assert all(0.8 < useless[each] < 1.2 for each in useless.keys() - {"part", "device"})


def test_a_constant_of_speculation_can_be_varied():
    assert simulate.changed(["max_ahead=1"]) == dataclasses.replace(DEFAULTS, max_ahead=1)
    for wrong in ("ahead=1", "max_ahead=x"):
        with pytest.raises(ConfigError, match="--constant"):
            simulate.changed([wrong])
