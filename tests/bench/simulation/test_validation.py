"""Results of `bench speed`, simulated."""

import json

import pytest

from bench.simulation.contest import Way
from bench.simulation.validation import read, validate
from bench.speed import Configuration
from shared.errors import ConfigError

NAME = str(Configuration("0.4G:f16", "0.1", 0.0, 2, 20.0))


def row(way, speedup, accepted=None, configuration=NAME):
    return {"configuration": configuration, "way": way, "speedup": speedup, "accepted_share": accepted}


def result(*rows):
    return {
        "rows": list(rows),
        "draft_costs": {"0.4G:f16 0.1": 0.11},
        "step_seconds": {"0.4G:f16": {"1": 0.05, "2": 0.05, "4": 0.06}},
    }


@pytest.fixture
def save(tmp_path):
    def write(content):
        path = tmp_path / "speed.json"
        path.write_text(json.dumps(content))
        return path

    return write


ROWS = [row("no back", 1.0), row("sync 2", 1.8, 0.6), row("sync 1", 1.5, 0.8), row("adaptive", 2.0, 0.9)]


def test_a_configuration_becomes_the_cell_that_stands_for_it(save):
    (measured,) = read(save(result(*ROWS)))
    back = measured.cell.backs[0]
    assert len(measured.cell.backs) == 2
    assert (back.step_s, back.rtt_s) == (pytest.approx(0.0055), 0.02)
    assert back.skill.acceptance == pytest.approx((0.8 + 0.7042) / 2, abs=1e-3)  # (a + a²) / 2 = 0.6
    assert measured.cell.steps.seconds(3) == pytest.approx(0.055)
    assert measured.speedups == {Way("sync", 1): 1.5, Way("sync", 2): 1.8, Way("adaptive"): 2.0}


def test_the_prediction_stands_beside_the_measurement(save):
    (each,) = validate(read(save(result(row("sync 1", 1.5, 0.8)))), n_jobs=1)
    assert each["measured"] == 1.5
    assert 1.1 < each["predicted"] < 1.8
    assert each["predicted_to_measured"] == pytest.approx(each["predicted"] / 1.5, abs=0.002)


@pytest.mark.parametrize(
    "content", [[], {}, result(), result(row("no back", 1.0)), result(row("sync 1", 1.5, 0.8, "else"))]
)
def test_what_tells_nothing_is_refused(save, content):
    with pytest.raises(ConfigError, match=r"speed\.json"):
        read(save(content))
