"""What a doctor concludes from a lead's report."""

import pytest

from shared.diagnostics.doctor.diagnosis import Diagnosis, Weight
from shared.diagnostics.doctor.judge import (
    judge_cores,
    judge_crowding,
    judge_draft_speed,
    judge_lead,
    judge_round_trip,
    judge_version,
)
from shared.diagnostics.doctor.lead_report import LeadReport

STEPS = {"1": 20.0, "2": 22.0, "5": 30.0}
PLANNER = {
    "policy": "adaptive",
    "step_ms": STEPS,
    "n_steps": 100,
    "n_committed": 250,
    "n_draft_tokens": 200,
    "n_accepted_tokens": 150,
    "depths": {"0": 10, "4": 90},
    "sources": {"desk": {"n_scored": 200, "n_right": 150, "first_draft_ms": 5.0, "token_ms": 3.0}},
}
DESK = {"name": "desk", "model": "small", "n_drafts": 100}
LEAD = {"version": "1.0", "protocol": 1, "speculates": True, "cores": [0, 1], "n_threads": 1}


def report(lead=LEAD, backs=(DESK,), planner=PLANNER, **changes):
    """A healthy lead but for `changes` of the planner."""
    planner = planner and planner | changes
    return LeadReport.model_validate({"lead": lead, "backs": list(backs), "planner": planner})


def weighty(findings):
    """(weight, sentence) of all that is not good."""
    return [(each.weight, each.sentence) for each in findings if each.weight is not Weight.GOOD]


def only(findings, weight, words):
    ((found, sentence),) = weighty(findings)
    assert found is weight
    assert words in sentence


def test_a_lead_that_is_well_has_no_problem_and_no_hint():
    assert weighty(judge_lead(report())) == []


@pytest.mark.parametrize(
    ("changed", "weight", "words"),
    [
        ({"policy": "off"}, Weight.PROBLEM, "without --policy off"),
        ({"policy": "sync"}, Weight.HINT, "--policy sync is there to compare"),
        ({"step_ms": {}}, Weight.HINT, "not known yet"),
        ({"step_ms": {"1": 20.0, "2": 39.0, "4": 90.0}}, Weight.PROBLEM, "would gain nothing"),
        ({"n_steps": 3}, Weight.HINT, "has made 3 steps"),
        ({"depths": {"0": 90, "4": 10}}, Weight.HINT, "in 90% of the steps"),
        ({"sources": {"desk": {"n_scored": 100, "n_right": 20}}}, Weight.PROBLEM, "only 20% of desk's"),
        ({"sources": {"desk": {"token_ms": 19.0}}}, Weight.PROBLEM, "desk needs 19.0 ms for a token"),
    ],
)
def test_what_keeps_the_lead_from_being_faster_is_said(changed, weight, words):
    only(judge_lead(report(**changed)), weight, words)


@pytest.mark.parametrize(
    ("back", "weight", "words"),
    [
        ({"n_drafts": 0}, Weight.PROBLEM, "desk has sent no draft"),
        ({"n_invalid_drafts": 2}, Weight.PROBLEM, "install the same version"),
    ],
)
def test_what_a_back_does_wrong_is_said(back, weight, words):
    found = weighty(judge_lead(report(backs=[DESK | back])))
    assert [(each[0], words in each[1]) for each in found] == [(weight, True)]


LATE = [DESK | {"n_stale_drafts": 80}]


def test_drafts_that_come_too_late_are_said_where_the_lead_lacks_them():
    lacking = {"depths": {"0": 60, "4": 40}}
    only(judge_lead(report(backs=LATE, **lacking)), Weight.HINT, "80% of desk's drafts come too late")
    assert weighty(judge_lead(report(backs=LATE))) == []


def test_a_lead_without_backs_is_told_how_to_start_one():
    only(judge_lead(report(backs=[])), Weight.PROBLEM, "back --model SMALL.gguf --lead")


@pytest.mark.parametrize("backs", [[], [DESK | {"name": "others"}]])
def test_a_back_that_does_not_run_is_told_so(backs):
    weight = Weight.HINT if backs else Weight.PROBLEM
    only(judge_lead(report(backs=backs), "other"), weight, "this back (other) is not running")


@pytest.mark.parametrize("name", ["desk", "desk-2"])
def test_a_back_that_runs_is_known_by_its_name(name):
    back = LATE[0] | {"name": name}
    found = judge_lead(report(backs=[back], depths={"0": 60, "4": 40}), "desk")
    only(found, Weight.HINT, "the times above tell network from computing")


def test_of_a_model_that_cannot_speculate_nothing_else_is_said():
    only(judge_lead(report(lead=LEAD | {"speculates": False})), Weight.PROBLEM, "recurrent or hybrid")


def test_an_engine_that_does_not_answer_is_a_hint():
    only(judge_lead(report(planner=None)), Weight.HINT, "the engine does not answer")


def test_a_back_that_has_just_come_is_no_problem():
    quiet = DESK | {"n_drafts": 0}
    assert Weight.PROBLEM not in {each.weight for each in judge_lead(report(backs=[quiet], n_steps=0))}


@pytest.mark.parametrize(
    ("lead", "weight"),
    [
        ({}, Weight.GOOD),
        ({"version": "0.9"}, Weight.HINT),
        ({"protocol": 2}, Weight.PROBLEM),
        ({"version": None, "protocol": None}, Weight.GOOD),
    ],
)
def test_another_protocol_is_a_problem_and_another_version_a_hint(lead, weight):
    (found,) = judge_version(report(lead=LEAD | lead), "1.0")
    assert found.weight is weight


@pytest.mark.parametrize(("draft_ms", "weight"), [(2, Weight.GOOD), (10, Weight.HINT), (18, Weight.PROBLEM)])
def test_the_draft_model_is_held_against_a_step(draft_ms, weight):
    (found,) = judge_draft_speed(draft_ms, report().planner)
    assert found.weight is weight


SLOW = {"desk": {"n_scored": 60, "n_right": 9, "token_ms": 19.0}}


def test_of_a_few_steps_no_rate_is_a_problem():
    found = [*judge_lead(report(n_steps=49, sources=SLOW))]
    found += judge_draft_speed(18.0, report(n_steps=49).planner)
    assert Weight.PROBLEM not in {each.weight for each in found}
    assert ["too few steps to judge (49 of 50)" in each.sentence for each in found[-2:]] == [True, True]


def test_of_a_few_drafts_no_rate_is_a_problem():
    found = judge_lead(report(backs=[DESK | {"n_drafts": 49}], sources={"desk": {"token_ms": 19.0}}))
    assert weighty(found) == []


def test_what_a_backs_rate_is_of_is_said():
    *_, found = judge_lead(report())
    assert "each token is right with 75% if those before it are" in found.sentence


@pytest.mark.parametrize(("beside", "words"), [(True, "they share cores or memory"), (False, "several")])
def test_a_draft_model_that_is_much_slower_beside_the_lead_is_a_hint(beside, words):
    only(judge_crowding(report(sources=SLOW), "desk", 9.0, beside=beside), Weight.HINT, words)


@pytest.mark.parametrize(
    ("own", "draft_ms", "n_steps"), [("desk", 10.0, 100), ("desk", 9.0, 49), ("attic", 9.0, 100)]
)
def test_of_crowding_nothing_is_said_without_a_reason(own, draft_ms, n_steps):
    seen = report(sources=SLOW, n_steps=n_steps)
    assert list(judge_crowding(seen, own, draft_ms, beside=True)) == []


def test_without_a_step_to_compare_with_a_draft_rate_is_only_told():
    only(judge_draft_speed(2.0, None), Weight.HINT, "not known yet")


@pytest.mark.parametrize(("round_trip_ms", "weight"), [(1, Weight.GOOD), (50, Weight.HINT)])
def test_a_round_trip_longer_than_a_step_is_a_hint(round_trip_ms, weight):
    (found,) = judge_round_trip(round_trip_ms, report().planner)
    assert found.weight is weight


@pytest.mark.parametrize(
    ("lead", "cores", "n_threads", "weight"),
    [
        ({"cores": [0, 1], "n_threads": 1}, {0, 1}, 1, Weight.GOOD),
        ({"cores": [0, 1], "n_threads": 2}, {0, 1}, 1, Weight.PROBLEM),
        ({"cores": [0], "n_threads": 2}, {1}, 1, Weight.GOOD),
        ({"cores": [0, 1], "n_threads": 2}, {1, 2}, 2, Weight.PROBLEM),
        ({"cores": []}, {0}, 1, Weight.HINT),
    ],
)
def test_programs_that_share_cores_need_enough_of_them(lead, cores, n_threads, weight):
    (found,) = judge_cores(report(lead=LEAD | lead), frozenset(cores), n_threads)
    assert found.weight is weight


def test_a_problem_makes_the_exit_status_1():
    diagnosis = Diagnosis()
    diagnosis.add(judge_lead(report()))
    assert (diagnosis.status, str(diagnosis).splitlines()[-1]) == (0, "All is well.")
    diagnosis.add(judge_lead(report(backs=[])))
    assert (diagnosis.status, str(diagnosis).splitlines()[-1]) == (1, "1 problem between you and a speed-up.")


def test_a_lead_that_says_less_or_more_is_understood():
    assert LeadReport.model_validate({"new": 1, "backs": [{"name": "b", "new": 2}]}).backs[0].name == "b"
