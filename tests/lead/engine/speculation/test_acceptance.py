"""How likely a token is right: its source's word at first, and then what came of such tokens."""

import random

import pytest

from lead.engine.speculation.acceptance import Acceptance
from lead.engine.speculation.board import TokenOutcome


def outcome(right, confidence=0.9, agreement="single", source="a", place=0):
    return TokenOutcome(source, confidence, agreement, place, right)


def learned(*outcomes, acceptance=None):
    acceptance = acceptance or Acceptance()
    acceptance.learn(outcomes)
    return acceptance


def mixed(n, share, confidence=0.9, agreement="single"):
    """`n` outcomes of which `share` are right, in any order."""
    rights = [i < round(n * share) for i in range(n)]
    random.Random(n).shuffle(rights)
    return [outcome(right, confidence, agreement) for right in rights]


# Before there is data


@pytest.mark.parametrize("confidence", [0.0, 0.2, 0.97, 1.0])
def test_a_new_source_is_believed(confidence):
    assert Acceptance().probability("new", confidence, "single") == confidence


def test_a_new_source_that_states_no_confidence_is_right_every_other_time():
    acceptance = Acceptance()
    assert acceptance.probability("new", None, "single") == acceptance.mean("new") == 0.5


def test_a_few_outcomes_do_not_outweigh_the_stated_confidence():
    assert learned(outcome(False)).probability("a", 0.9, "single") == pytest.approx(0.675)


def test_a_confidence_without_outcomes_is_believed_although_others_have_some():
    assert learned(*[outcome(False, 0.9)] * 50).probability("a", 0.3, "single") == 0.3


# What was learned


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("stated", [None, 0.05, 0.7, 0.999])
def test_outcomes_outweigh_the_confidence_that_a_source_states(stated, share):
    acceptance = learned(*mixed(400, share, stated))
    assert acceptance.probability("a", stated, "single") == pytest.approx(share, abs=0.15)


def test_each_confidence_has_its_own_calibration():
    acceptance = learned(*mixed(100, 0.9, 0.7), *mixed(100, 0.2, 0.3))
    assert acceptance.probability("a", 0.7, "single") > 0.7
    assert acceptance.probability("a", 0.3, "single") < 0.35


def test_sources_do_not_share_outcomes():
    acceptance = learned(*[outcome(False)] * 50, *[outcome(True, source="b")] * 50)
    assert acceptance.probability("a", 0.9, "single") < 0.1
    assert acceptance.probability("b", 0.9, "single") > 0.95


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_a_change_of_text_is_followed_within_some_tens_of_outcomes(before, after):
    acceptance = learned(*[outcome(before)] * 500)
    was_sure = acceptance.probability("a", 0.9, "single")
    acceptance.learn([outcome(after)] * 40)
    now = acceptance.probability("a", 0.9, "single")
    assert (was_sure > 0.9, now > 0.6) == (before, after)
    assert (was_sure < 0.2, now < 0.4) == (after, before)


def test_agreement_and_conflict_are_learned_separately():
    acceptance = learned(*mixed(60, 0.95, agreement="agreed"), *mixed(60, 0.3, agreement="conflicting"))
    agreed, disputed = (
        acceptance.probability("a", 0.9, agreement) for agreement in ("agreed", "conflicting")
    )
    assert agreed > 0.85
    assert disputed < 0.45
    assert disputed < acceptance.probability("a", 0.9, "single") < agreed


def test_an_agreement_without_outcomes_counts_as_none():
    acceptance = learned(*mixed(60, 0.5))
    assert acceptance.probability("a", 0.9, "agreed") == acceptance.probability("a", 0.9, "single")


def test_the_mean_is_over_all_confidences():
    acceptance = learned(*[outcome(True, 0.95), outcome(False, 0.1)] * 60)
    assert acceptance.mean("a") == pytest.approx(0.5, abs=0.05)


def test_a_source_of_which_little_is_known_may_be_better_than_its_mean():
    acceptance = learned(*mixed(4, 0.5))
    assert acceptance.hopeful_mean("a") > acceptance.mean("a") + 0.2
    assert acceptance.hopeful_mean("new") > acceptance.mean("new")


def test_with_many_tokens_there_is_less_to_hope_for():
    for share in (0.0, 0.6):
        acceptance = learned(*mixed(200, share))
        assert acceptance.mean("a") < acceptance.hopeful_mean("a") < acceptance.mean("a") + 0.12


def test_hope_has_its_limits():
    assert learned(outcome(True)).hopeful_mean("a") <= 1.0


# Leaving


def test_a_source_that_left_is_forgotten():
    acceptance = learned(*[outcome(False)] * 50, outcome(True, source="b"))
    acceptance.forget("a")
    assert acceptance.probability("a", 0.9, "single") == 0.9
    assert acceptance.sources == ["b"]


def test_forgetting_a_stranger_does_nothing():
    acceptance = learned(outcome(True))
    acceptance.forget("stranger")
    assert acceptance.sources == ["a"]


# The report


def test_the_report_shows_acceptance_by_position():
    acceptance = learned(outcome(True), outcome(True), outcome(False, place=1), outcome(True))
    report = acceptance.describe("a")
    assert (report["n_scored"], report["n_right"]) == (4, 3)
    assert report["acceptance_by_position"] == [1.0, 0.0]


def test_a_position_never_tried_keeps_its_place_in_the_report():
    report = learned(outcome(True), outcome(False, place=2)).describe("a")
    assert report["acceptance_by_position"] == [1.0, None, 0.0]


def test_outcomes_far_along_a_draft_are_counted_too():
    assert learned(outcome(True, place=99)).describe("a")["n_scored"] == 1


def test_the_report_shows_the_calibration_from_low_to_high():
    report = learned(outcome(True, 0.97), outcome(False, 0.05), outcome(True, None)).describe("a")
    assert report["calibration"] == [
        {"confidence_from": None, "chance": 1.0},
        {"confidence_from": 0.0, "chance": 0.0},
        {"confidence_from": 0.96, "chance": 1.0},
    ]


def test_the_report_of_a_stranger_is_empty():
    report = Acceptance().describe("stranger")
    assert (report["n_scored"], report["acceptance_by_position"], report["calibration"]) == (0, [], [])


# Tokens that have not arrived yet


def test_beside_a_token_of_another_source_counts_what_came_of_tokens_beside_such():
    doubtful = [each._replace(beside=0.3) for each in mixed(100, 0.2)]
    likely = [each._replace(beside=0.95) for each in mixed(100, 0.9)]
    acceptance = learned(*doubtful, *likely)
    assert acceptance.mean_beside("a", 0.3) == pytest.approx(0.2, abs=0.15)
    assert acceptance.mean_beside("a", 0.95) == pytest.approx(0.9, abs=0.1)


def test_beside_a_token_of_another_source_without_outcomes_its_usual_share_counts():
    acceptance = learned(*mixed(100, 0.7))
    assert acceptance.mean_beside("a", 0.3) == acceptance.mean("a")
    assert acceptance.mean_beside("new", 0.3) == acceptance.mean("new")
