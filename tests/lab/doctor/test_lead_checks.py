import pytest
from pydantic import ValidationError

from lab.doctor.lead_checks import (
    check_draft_speed,
    check_drafting,
    check_lead,
    check_round_trip,
    check_shared_cores,
    check_version,
    token_ms_at_work,
)
from shared.diagnostics.findings import DoctorReport, Severity
from shared.diagnostics.lead_probe import LeadReport
from shared.protocol import PROTOCOL_VERSION

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
LATE = [DESK | {"n_stale_drafts": 80}]
LEAD = {"version": "1.0", "protocol": PROTOCOL_VERSION, "speculates": True, "cores": [0, 1], "n_threads": 1}


def report(lead=LEAD, backs=(DESK,), planner=PLANNER, **changes):
    """The report of a healthy lead, except for `changes` of the planner."""
    planner = planner and planner | changes
    return LeadReport.model_validate({"lead": lead, "backs": list(backs), "planner": planner})


def weighty(findings):
    """(severity, sentence) of all findings that are not good."""
    return [(each.severity, each.sentence) for each in findings if each.severity is not Severity.GOOD]


def only(findings, severity, words):
    ((found, sentence),) = weighty(findings)
    assert found is severity
    assert words in sentence


@pytest.mark.parametrize(
    ("changed", "back"),
    [
        ({}, None),
        ({"backs": LATE}, None),
        ({"backs": [DESK | {"n_drafts": 49}], "sources": {"desk": {"token_ms": 19.0}}}, None),
        ({"sources": {"desk": {"token_ms": 9.0}}}, "desk"),
    ],
    ids=["healthy", "late drafts, of which the lead lacked none", "a few drafts", "its own speed, to a back"],
)
def test_without_a_problem_nothing_is_reported(changed, back):
    assert weighty(check_lead(report(**changed), back)) == []


def test_what_is_promised_of_texts_is_repeated():
    first, *_ = check_lead(report(lead={**LEAD, "promise": "exact samples"}))
    assert (first.severity, first.sentence) == (Severity.GOOD, "texts: exact samples")


@pytest.mark.parametrize(
    ("changed", "severity", "words"),
    [
        ({"policy": "off"}, Severity.PROBLEM, "without --policy off"),
        ({"policy": "sync"}, Severity.HINT, "--policy sync is for comparison only"),
        ({"step_ms": {}}, Severity.HINT, "not known yet"),
        ({"step_ms": {"1": 20.0, "2": 39.0, "4": 90.0}}, Severity.PROBLEM, "Drafts rarely give"),
        ({"step_ms": {"1": 5.0, "4": 6.0}, "sources": {}}, Severity.HINT, "shorter than 10 ms"),
        ({"sources": {"desk": {"token_ms": 9.0}}}, Severity.HINT, "A faster draft model can help more"),
        ({"n_steps": 3}, Severity.HINT, "has run only 3 steps"),
        ({"n_steps": 1}, Severity.HINT, "has run only 1 step."),
        ({"depths": {"0": 90, "4": 10}}, Severity.HINT, "In 90% of the steps"),
        ({"sources": {"desk": {"n_scored": 100, "n_right": 20}}}, Severity.PROBLEM, "only 20% of desk's"),
        ({"sources": {"desk": {"token_ms": 19.0}}}, Severity.PROBLEM, "desk takes 19.0 ms per token"),
        ({"backs": []}, Severity.PROBLEM, "lead invite --open"),
        ({"backs": [], "step_ms": {"1": 5.0, "4": 6.0}}, Severity.HINT, "Draft in the engine"),
        ({"backs": [DESK | {"n_drafts": 0}]}, Severity.PROBLEM, "desk has sent no draft"),
        ({"backs": [DESK | {"n_invalid_drafts": 2}]}, Severity.PROBLEM, "Install the same version"),
        (
            {"backs": LATE, "depths": {"0": 60, "4": 40}},
            Severity.HINT,
            "80% of desk's drafts arrive",
        ),
        ({"lead": LEAD | {"speculates": False}}, Severity.PROBLEM, "recurrent model"),
        ({"planner": None}, Severity.HINT, "the engine does not answer"),
    ],
)
def test_what_slows_the_lead_down_is_reported(changed, severity, words):
    only(check_lead(report(**changed)), severity, words)


@pytest.mark.parametrize(("first_ms", "words"), [(20.0, "10 to 100 ms"), (200.0, "100 ms or more")])
def test_where_backs_pay_that_is_said(first_ms, words):
    steps = {"1": first_ms, "4": 1.1 * first_ms}
    assert any(words in each.sentence for each in check_lead(report(step_ms=steps)))


@pytest.mark.parametrize("backs", [[], [DESK | {"name": "others"}], [DESK | {"name": "other-2"}]])
def test_a_back_that_is_not_connected_is_reported(backs):
    severity = Severity.HINT if backs else Severity.PROBLEM
    only(check_lead(report(backs=backs), "other"), severity, "this back (other) is not connected")


@pytest.mark.parametrize("name", ["desk", "desk:2", "laptop:desk", "laptop:desk:2"])
def test_a_connected_back_is_recognized_by_its_name(name):
    back = LATE[0] | {"name": name}
    found = check_lead(report(backs=[back], depths={"0": 60, "4": 40}), "desk")
    only(found, Severity.HINT, "the times above show whether the network")


def test_a_back_that_has_just_connected_is_fine():
    quiet = DESK | {"n_drafts": 0}
    assert Severity.PROBLEM not in {each.severity for each in check_lead(report(backs=[quiet], n_steps=0))}


@pytest.mark.parametrize(
    ("lead", "severity"),
    [
        ({}, Severity.GOOD),
        ({"version": "0.9"}, Severity.HINT),
        ({"protocol": PROTOCOL_VERSION + 1}, Severity.PROBLEM),
        ({"version": None, "protocol": None}, Severity.GOOD),
    ],
)
def test_another_protocol_is_a_problem_and_another_version_a_hint(lead, severity):
    (found,) = check_version(report(lead=LEAD | lead), "1.0")
    assert found.severity is severity


@pytest.mark.parametrize(
    ("draft_ms", "severity"), [(2, Severity.GOOD), (10, Severity.HINT), (18, Severity.PROBLEM)]
)
def test_drafting_is_compared_with_a_step(draft_ms, severity):
    (found,) = check_draft_speed(draft_ms, report().planner)
    assert found.severity is severity


SLOW = {"desk": {"n_scored": 60, "n_right": 9, "token_ms": 19.0}}


def test_rates_of_a_few_steps_are_not_problems():
    found = [*check_lead(report(n_steps=49, sources=SLOW))]
    found += check_draft_speed(18.0, report(n_steps=49).planner)
    assert Severity.PROBLEM not in {each.severity for each in found}
    assert ["too few steps to tell (49 of 50)" in each.sentence for each in found[-2:]] == [True, True]


@pytest.mark.parametrize(("beside", "words"), [(True, "lead and back share cores"), (False, "several")])
def test_a_draft_model_that_is_much_slower_beside_the_lead_is_a_hint(beside, words):
    *_, found = check_drafting(report(sources=SLOW), "desk", 9.0, "", is_local=beside)
    only([found], Severity.HINT, words)


@pytest.mark.parametrize(
    ("own", "draft_ms", "n_steps"), [("desk", 10.0, 100), ("desk", 9.0, 49), ("attic", 9.0, 100)]
)
def test_contention_is_reported_only_with_evidence(own, draft_ms, n_steps):
    seen = report(sources=SLOW, n_steps=n_steps)
    assert len(list(check_drafting(seen, own, draft_ms, "", is_local=True))) == 1


def test_a_model_that_is_fast_alone_is_not_called_too_slow():
    found = list(check_drafting(report(sources=SLOW), "desk", 2.0, " alone", is_local=True))
    assert [each.severity for each in found] == [Severity.GOOD, Severity.HINT]


def test_without_a_step_to_compare_with_drafting_is_a_hint():
    only(check_draft_speed(2.0, None), Severity.HINT, "not known yet")


@pytest.mark.parametrize(("round_trip_ms", "severity"), [(1, Severity.GOOD), (50, Severity.HINT)])
def test_a_round_trip_longer_than_a_step_is_a_hint(round_trip_ms, severity):
    (found,) = check_round_trip(round_trip_ms, report().planner)
    assert found.severity is severity


@pytest.mark.parametrize(
    ("lead", "cores", "n_threads", "severity"),
    [
        ({"cores": [0, 1], "n_threads": 1}, {0, 1}, 1, Severity.GOOD),
        ({"cores": [0, 1], "n_threads": 2}, {0, 1}, 1, Severity.PROBLEM),
        ({"cores": [0], "n_threads": 2}, {1}, 1, Severity.GOOD),
        ({"cores": [0, 1], "n_threads": 2}, {1, 2}, 2, Severity.PROBLEM),
        ({"cores": []}, {0}, 1, Severity.HINT),
    ],
)
def test_programs_that_share_cores_need_enough_of_them(lead, cores, n_threads, severity):
    (found,) = check_shared_cores(report(lead=LEAD | lead), frozenset(cores), n_threads)
    assert found.severity is severity


@pytest.mark.parametrize(
    ("backs", "status", "words"), [([DESK], 0, "No problems found."), ([], 1, "1 problem found.")]
)
def test_a_problem_makes_the_exit_status_1(backs, status, words):
    found = DoctorReport(list(check_lead(report(backs=backs))))
    assert (found.status, str(found).splitlines()[-1]) == (status, words)


def test_reports_with_fewer_or_more_fields_are_read():
    assert LeadReport.model_validate({"new": 1, "backs": [{"name": "b", "new": 2}]}).backs[0].name == "b"


def test_a_name_that_a_lead_reports_can_neither_control_a_terminal_nor_add_a_line():
    evil = DESK | {"model": "\x1b[2J\u202e\u200f\n     ok  all is well"}
    shown = str(DoctorReport(list(check_lead(report(backs=[evil])))))
    assert not {"\x1b", "\u202e", "\u200f"} & set(shown)
    assert "\n     ok  all is well" not in shown


@pytest.mark.parametrize(
    "planner", [{"n_steps": 10**400}, {"n_committed": 1 << 60}, {"step_ms": {"1": 1.0, str(10**400): 1.0}}]
)
def test_numbers_that_no_lead_counts_are_refused(planner):
    with pytest.raises(ValidationError):
        report(**planner)


@pytest.mark.parametrize("token_ms", [3.0, 9.0, 19.0])
def test_both_doctors_judge_a_back_by_what_the_lead_has_measured(token_ms):
    seen = report(sources={"desk": {"n_scored": 200, "n_right": 150, "token_ms": token_ms}})
    at_lead = [each.severity for each in check_lead(seen) if "desk" in each.sentence]
    (at_back,) = check_draft_speed(token_ms_at_work(seen, "desk"), seen.planner)
    assert at_lead == [at_back.severity]


@pytest.mark.parametrize("backs", [[DESK | {"n_drafts": 49}], [DESK | {"name": "attic"}]])
def test_a_few_drafts_and_those_of_others_are_no_measurement(backs):
    assert token_ms_at_work(report(backs=backs), "desk") is None


def test_a_back_of_which_little_is_known_is_not_said_to_draft_well():
    (found,) = [each for each in check_lead(report(sources={})) if "desk" in each.sentence]
    assert "too few drafts were sent" in found.sentence
