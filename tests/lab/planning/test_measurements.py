"""The certainty of a measured acceptance, and the result of several measurements of one target."""

import pytest

from lab.planning import measurements
from lab.planning.measurements import AcceptanceRate, EngineTimes, PairTimes, SplitTimes, with_common_steps


def test_the_interval_is_wilsons():
    # Newcombe (1998), Statistics in Medicine 17, table I: 81 of 263 and 15 of 148, method 3
    assert AcceptanceRate(81, 263).interval() == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert AcceptanceRate(15, 148).interval() == pytest.approx((0.0624, 0.1605), abs=1e-4)


@pytest.mark.parametrize(("n_right", "low", "high"), [(0, 0.0, 0.2), (16, 0.8, 1.0)])
def test_it_stays_within_zero_and_one(n_right, low, high):
    assert AcceptanceRate(n_right, 16).interval() == pytest.approx((low, high), abs=0.01)


def pair(t1, *splits, is_offloaded=False):
    times = [SplitTimes(cores, (9,), {1: t1, 2: 2 * t1}, 0.01, 1.0, 1.0) for cores in splits]
    return PairTimes(EngineTimes({1: t1, 2: 2 * t1, 16: 1.0}, is_offloaded=is_offloaded), times)


def test_steps_of_one_target_on_the_same_cores_are_averaged():
    first, second = with_common_steps([pair(1.0, (0,), (0, 1)), pair(3.0, (0,))])
    assert first.engine.steps == second.engine.steps == {1: 2.0, 2: 4.0, 16: 1.0}
    assert [split.steps for split in first.splits] == [{1: 2.0, 2: 4.0}, {1: 1.0, 2: 2.0}]
    assert second.splits[0].steps == {1: 2.0, 2: 4.0}


def test_on_a_gpu_each_draft_model_leaves_other_layers_to_the_target():
    pairs = [pair(1.0, is_offloaded=True), pair(3.0, is_offloaded=True)]
    assert with_common_steps(pairs) == pairs


def test_a_compiler_that_has_ended_is_no_load(monkeypatch):
    """A minute later the load average is still 3, but no program computes."""
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 3.0, 3.0))
    monkeypatch.setattr("psutil.cpu_count", lambda: 2)
    monkeypatch.setattr("psutil.cpu_percent", lambda seconds: {0.5: 2.0}[seconds])
    assert measurements.busy_warnings(measurements.busy_cores()) == []
    monkeypatch.setattr("psutil.cpu_percent", lambda seconds: {0.5: 75.0}[seconds])
    assert "used 1.5 cores" in measurements.busy_warnings(measurements.busy_cores())[0]
