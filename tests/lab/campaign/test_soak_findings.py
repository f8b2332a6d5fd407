"""The failures that a soak may find: changed answers, deaths, growth after 20 minutes, an absurd T(n)."""

import pytest

from lab.campaign.soak_findings import Findings, Sample, grown, nonsense
from lab.parts.processes import Usage

PLANNER = {"n_steps": 100, "step_seconds": 0.2, "n_draft_tokens": 50, "n_accepted_tokens": 30}


def samples(sizes):
    return [Sample(60.0 * i, {"front": Usage(size, 20, 1)}, {}) for i, size in enumerate(sizes)]


def planner(**changes):
    return {**PLANNER, "step_ms": {"1": 1.5, "4": 2.5}, **changes}


def test_what_grows_at_first_and_is_level_after_20_minutes_is_none():
    assert list(grown(samples([50 + min(i, 20) for i in range(60)]))) == []
    assert list(grown(samples([50 + i for i in range(15)]))) == []


def test_what_goes_on_growing_is_named():
    (found,) = grown(samples([50 + i for i in range(60)]))
    assert found == "front: MB of a process grew from 89 to 109"
    descriptors = [Sample(60.0 * i, {"front": Usage(50, 20 + i, 1)}, {}) for i in range(60)]
    assert list(grown(descriptors)) == ["front: descriptors of a process grew from 59 to 79"]


def test_a_process_more_at_a_busy_moment_is_no_growth():
    usage = [Usage(50.0 * n, 7 * n, n) for n in (4, 5)]
    assert list(grown([Sample(60.0 * i, {"fork": usage[i > 50]}, {}) for i in range(60)])) == []


@pytest.mark.parametrize(
    "line",
    [
        "12:00:00 back ERROR: drafting failed",
        "Traceback (most recent call last):",
        "12:00:00 engine CRITICAL: nothing happens: {}",
        "12:00:00 lead WARNING: a tokenizer process ended with status -9. Its request was refused",
    ],
)
def test_a_line_that_tells_of_a_death_is_a_failure(line):
    findings = Findings()
    findings.read(line, "minute 1.0, lead")
    assert findings.failures() == [f"minute 1.0, lead: {line}"]


def test_other_warnings_are_counted_by_what_they_say():
    findings = Findings()
    findings.read("12:00:00 lead INFO: ready", "")
    for n in (1, 22):
        findings.read(f"12:00:00 engine WARNING: a text on disk is lost: {n}", "")
    assert findings.warnings == {"a text on disk is lost: #": 2}
    assert findings.failures() == []


def test_the_sums_of_an_engine_that_is_loaded_again_are_added():
    findings = Findings()
    for n_steps in (100, 150, 20, 50):
        findings.add(0.0, {}, planner(n_steps=n_steps))
    findings.add(0.0, {}, {})
    findings.add(0.0, {}, planner(n_steps=10))
    assert findings.totals["n_steps"] == 210


@pytest.mark.parametrize(
    ("milliseconds", "can_be"), [(1.5, True), (9.0, True), (20.0, False), (2340.0, False), (0.0, False)]
)
def test_step_times_that_cannot_be_are_a_failure_whenever_they_were(milliseconds, can_be):
    tables = [{"1": 1.5, "4": 2.5}, {"4": 2.5, "1": milliseconds, "256": 300.0}, {"1": 1.5}, {}]
    found = list(nonsense([Sample(60.0 * i, {}, table) for i, table in enumerate(tables)]))
    assert bool(found) is not can_be
    assert all(each.startswith("minute 1.0: ") for each in found)
