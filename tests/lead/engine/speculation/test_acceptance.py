"""How likely a token is right: its source's word at first, and then what came of such tokens."""

import random

import pytest

from lead.engine.speculation.acceptance import Acceptance
from lead.engine.speculation.board import Trial


def trial(right, confidence=0.9, company="alone", source="a", place=0):
    return Trial(source, confidence, company, place, right)


def learned(*trials, acceptance=None):
    acceptance = acceptance or Acceptance()
    acceptance.learn(trials)
    return acceptance


def mixed(n, share, confidence=0.9, company="alone"):
    """`n` trials of which `share` are right, in any order."""
    rights = [i < round(n * share) for i in range(n)]
    random.Random(n).shuffle(rights)
    return [trial(right, confidence, company) for right in rights]


# Before there is data


@pytest.mark.parametrize("confidence", [0.0, 0.2, 0.97, 1.0])
def test_a_new_source_is_believed(confidence):
    assert Acceptance().chance("new", confidence, "alone") == confidence


def test_a_new_source_that_states_no_confidence_is_right_every_other_time():
    acceptance = Acceptance()
    assert acceptance.chance("new", None, "alone") == acceptance.mean("new") == 0.5


def test_a_few_trials_do_not_overturn_a_source_s_word():
    assert learned(trial(False)).chance("a", 0.9, "alone") == pytest.approx(0.675)


def test_a_confidence_never_tried_is_believed_though_others_were():
    assert learned(*[trial(False, 0.9)] * 50).chance("a", 0.3, "alone") == 0.3


# What was learned


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("stated", [None, 0.05, 0.7, 0.999])
def test_whatever_it_states_a_source_is_taken_for_what_it_showed(stated, share):
    acceptance = learned(*mixed(400, share, stated))
    assert acceptance.chance("a", stated, "alone") == pytest.approx(share, abs=0.15)


def test_each_confidence_has_its_own_calibration():
    acceptance = learned(*mixed(100, 0.9, 0.7), *mixed(100, 0.2, 0.3))
    assert acceptance.chance("a", 0.7, "alone") > 0.7
    assert acceptance.chance("a", 0.3, "alone") < 0.35


def test_sources_do_not_share_what_they_showed():
    acceptance = learned(*[trial(False)] * 50, *[trial(True, source="b")] * 50)
    assert acceptance.chance("a", 0.9, "alone") < 0.1
    assert acceptance.chance("b", 0.9, "alone") > 0.95


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_a_change_of_text_is_followed_within_some_tens_of_trials(before, after):
    acceptance = learned(*[trial(before)] * 500)
    was_sure = acceptance.chance("a", 0.9, "alone")
    acceptance.learn([trial(after)] * 40)
    now = acceptance.chance("a", 0.9, "alone")
    assert (was_sure > 0.9, now > 0.6) == (before, after)
    assert (was_sure < 0.2, now < 0.4) == (after, before)


def test_agreement_and_dispute_are_learned_apart():
    acceptance = learned(*mixed(60, 0.95, company="agreed"), *mixed(60, 0.3, company="disputed"))
    agreed, disputed = (acceptance.chance("a", 0.9, company) for company in ("agreed", "disputed"))
    assert agreed > 0.85
    assert disputed < 0.45
    assert disputed < acceptance.chance("a", 0.9, "alone") < agreed


def test_company_not_met_before_is_taken_for_none():
    acceptance = learned(*mixed(60, 0.5))
    assert acceptance.chance("a", 0.9, "agreed") == acceptance.chance("a", 0.9, "alone")


def test_the_mean_is_over_all_confidences():
    acceptance = learned(*[trial(True, 0.95), trial(False, 0.1)] * 60)
    assert acceptance.mean("a") == pytest.approx(0.5, abs=0.05)


# Leaving


def test_a_source_that_left_is_forgotten():
    acceptance = learned(*[trial(False)] * 50, trial(True, source="b"))
    acceptance.forget("a")
    assert acceptance.chance("a", 0.9, "alone") == 0.9
    assert acceptance.sources == ["b"]


def test_forgetting_a_stranger_does_nothing():
    acceptance = learned(trial(True))
    acceptance.forget("stranger")
    assert acceptance.sources == ["a"]


# The report


def test_the_report_shows_acceptance_by_position():
    acceptance = learned(trial(True), trial(True), trial(False, place=1), trial(True))
    report = acceptance.describe("a")
    assert (report["n_scored"], report["n_right"]) == (4, 3)
    assert report["acceptance_by_position"] == [1.0, 0.0]


def test_a_position_never_tried_keeps_its_place_in_the_report():
    report = learned(trial(True), trial(False, place=2)).describe("a")
    assert report["acceptance_by_position"] == [1.0, None, 0.0]


def test_trials_far_along_a_draft_are_counted_too():
    assert learned(trial(True, place=99)).describe("a")["n_scored"] == 1


def test_the_report_shows_the_calibration_from_low_to_high():
    report = learned(trial(True, 0.97), trial(False, 0.05), trial(True, None)).describe("a")
    assert report["calibration"] == [
        {"confidence_from": None, "chance": 1.0},
        {"confidence_from": 0.0, "chance": 0.0},
        {"confidence_from": 0.96, "chance": 1.0},
    ]


def test_the_report_of_a_stranger_is_empty():
    report = Acceptance().describe("stranger")
    assert (report["n_scored"], report["acceptance_by_position"], report["calibration"]) == (0, [], [])
