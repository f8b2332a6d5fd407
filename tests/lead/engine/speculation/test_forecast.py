"""The likelihood of a token: at first its source's confidence, then the outcomes of such tokens."""

import random

import pytest

from lead.engine.speculation.drafts import Drafts, DraftToken, DraftTree, survival
from lead.engine.speculation.forecast import Forecast
from tests.lead.engine.speculation.support import Given


def outcome(right, confidence=0.9, agreement="single", source="a", place=0):
    return DraftToken(7, source, confidence), agreement, place, right


def learned(*outcomes, forecast=None):
    forecast = forecast or Forecast()
    for each in outcomes:
        forecast.learn(*each)
    return forecast


def mixed(n, share, confidence=0.9, agreement="single"):
    """`n` outcomes in random order, of which the share `share` is right."""
    rights = [i < round(n * share) for i in range(n)]
    random.Random(n).shuffle(rights)
    return [outcome(right, confidence, agreement) for right in rights]


# Before there is data


@pytest.mark.parametrize("confidence", [0.0, 0.2, 0.97, 1.0])
def test_a_new_source_is_believed(confidence):
    assert Forecast().probability("new", confidence, "single") == confidence


def test_a_new_source_that_states_no_confidence_is_right_every_other_time():
    forecast = Forecast()
    assert forecast.probability("new", None, "single") == forecast.mean("new") == 0.5


@pytest.mark.parametrize(
    ("n", "confidence", "chance"),
    [
        pytest.param(1, 0.9, 0.675, id="one outcome does not outweigh it"),
        pytest.param(50, 0.3, 0.3, id="outcomes of another confidence say nothing"),
    ],
)
def test_a_stated_confidence_is_believed(n, confidence, chance):
    forecast = learned(*[outcome(False, 0.9)] * n)
    assert forecast.probability("a", confidence, "single") == pytest.approx(chance)


# What was learned


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("stated", [None, 0.05, 0.7, 0.999])
def test_outcomes_outweigh_the_confidence_that_a_source_states(stated, share):
    forecast = learned(*mixed(400, share, stated))
    assert forecast.probability("a", stated, "single") == pytest.approx(share, abs=0.15)


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_a_change_of_text_is_followed_within_some_tens_of_outcomes(before, after):
    forecast = learned(*[outcome(before)] * 500)
    was_sure = forecast.probability("a", 0.9, "single")
    learned(*[outcome(after)] * 40, forecast=forecast)
    now = forecast.probability("a", 0.9, "single")
    assert (was_sure > 0.9, now > 0.6) == (before, after)
    assert (was_sure < 0.2, now < 0.4) == (after, before)


def test_agreement_and_conflict_are_learned_separately():
    forecast = learned(*mixed(60, 0.95, agreement="agreed"), *mixed(60, 0.3, agreement="conflicting"))
    agreed, disputed = (forecast.probability("a", 0.9, agreement) for agreement in ("agreed", "conflicting"))
    assert agreed > 0.85
    assert disputed < 0.45
    assert disputed < forecast.probability("a", 0.9, "single") < agreed


def test_an_agreement_without_outcomes_counts_as_none():
    forecast = learned(*mixed(60, 0.5))
    assert forecast.probability("a", 0.9, "agreed") == forecast.probability("a", 0.9, "single")


def test_the_mean_is_over_all_confidences():
    forecast = learned(*[outcome(True, 0.95), outcome(False, 0.1)] * 60)
    assert forecast.mean("a") == pytest.approx(0.5, abs=0.05)


def test_a_source_of_which_little_is_known_may_be_better_than_its_mean():
    forecast = learned(*mixed(4, 0.5))
    assert forecast.upper_mean("a") > forecast.mean("a") + 0.2
    assert forecast.upper_mean("new") > forecast.mean("new")


def test_with_many_tokens_there_is_less_to_hope_for():
    for share in (0.0, 0.6):
        forecast = learned(*mixed(200, share))
        assert forecast.mean("a") < forecast.upper_mean("a") < forecast.mean("a") + 0.12


# The report


def test_the_report_shows_acceptance_by_position_also_where_none_was_tried():
    report = learned(outcome(True), outcome(False, place=2), outcome(True)).describe("a")
    assert (report["n_scored"], report["n_right"]) == (3, 2)
    assert report["acceptance_by_position"] == [1.0, None, 0.0]


def test_the_report_shows_the_calibration_from_low_to_high():
    outcomes = [outcome(True, 0.97), outcome(False, 0.05), *[outcome(True, None)] * 2]
    report = learned(*outcomes).describe("a")
    assert report["calibration"] == [
        {"confidence_from": None, "chance": 1.0},
        {"confidence_from": 0.0, "chance": 0.0},
        {"confidence_from": 0.96, "chance": 1.0},
    ]


# Tokens that have not arrived yet


def drafts_of(**tokens):
    drafts = Drafts("s", [10, 11], {}, 0.0)
    for source, (drafted, confidences) in tokens.items():
        drafts.post(DraftTree(source, 2, drafted, None, confidences))
    return drafts


@pytest.mark.parametrize(
    ("others", "limits", "n_drafted", "probabilities"),
    [
        pytest.param({}, (50, 4), 2, (0.9, 0.9 * 0.8, 0.72 * 0.7, 0.504 * 0.7), id="as usual"),
        pytest.param({}, (1, 1), 1, (0.9,), id="no more than can be committed"),
        pytest.param(  # the mean of a new source is 0.5
            {"b": ([1, 2, 3, 4], [0.9, 0.8, 0.1, 0.5])},
            (50, 4),
            2,
            (0.9, 0.72, 0.72 * 0.5, 0.36 * 0.7),
            id="where another source shows that a place is hard it is so for both",
        ),
    ],
)
def test_the_next_tokens_of_a_draft_are_as_likely_as(others, limits, n_drafted, probabilities):
    drafts = drafts_of(a=([1, 2], [0.9, 0.8]), **others)
    future = Forecast().future(drafts, "a", 0.7, *limits)
    assert future.probabilities == pytest.approx(probabilities)
    assert future.n_drafted == n_drafted


# Drafts of several sources: a new forecast takes their word


def by_agreement(_source, _confidence, agreement):
    return {"single": 0.7, "agreed": 0.9, "conflicting": 0.4}[agreement]


def outlook(drafts, source):
    probabilities, following = Forecast().outlook(drafts, source)
    return probabilities, [(each.source, each.confidence) for each in following]


def best(drafts, forecast=None, **more):
    return [each.token for each in (forecast or Forecast()).best(drafts, **more)]


def test_the_probabilities_of_a_draft_count_what_others_propose_at_its_places():
    drafts = drafts_of(a=([1, 2, 3, 4], None), b=([1, 2, 9, 4], None))
    of_a, _ = Given(by_agreement).outlook(drafts, "a")
    assert of_a == [0.9, 0.9, 0.4, 0.7]  # behind the conflict it is alone


def test_where_sources_agree_the_better_one_says_how_likely_the_token_is():
    drafts = drafts_of(a=([1, 2], [0.6, 0.6]), b=([1, 5], [0.8, 0.8]))
    assert outlook(drafts, "a") == ([0.8, 0.6], [])


def test_behind_a_draft_counts_what_agrees_with_all_of_it():
    drafts = drafts_of(a=([1], [0.9]), b=([1, 2, 3], [0.9, 0.6, 0.5]), c=([7, 2, 3, 4], [0.9, 0.8, 0.8, 0.8]))
    assert outlook(drafts, "a") == ([0.9], [("b", 0.6), ("b", 0.5)])
    assert outlook(drafts, "c")[1] == []
    assert outlook(drafts, "new") == ([], [("c", 0.9), ("c", 0.8), ("c", 0.8), ("c", 0.8)])


@pytest.mark.parametrize(
    ("drafts", "chain"),
    [
        pytest.param({}, [], id="none"),
        pytest.param(
            {"a": ([1, 2, 3], [0.6, 0.1, 0.1]), "b": ([4, 5, 6], [0.5, 0.9, 0.9])},
            [4, 5, 6],
            id="one that begins worse but goes on better",
        ),
    ],
)
def test_of_several_drafts_the_best_is(drafts, chain):
    assert best(drafts_of(**drafts)) == chain


def test_agreement_decides_if_it_makes_tokens_likelier():
    drafts = drafts_of(a=([4, 5, 6], None), b=([1, 2], None), c=([1, 2], None))
    assert best(drafts, Given(by_agreement)) == [1, 2]


def test_where_drafts_agree_each_token_is_from_the_surer_source():
    drafts = drafts_of(a=([1, 2, 3], [0.9, 0.5, 0.9]), b=([1, 2], [0.6, 0.8]))
    assert Forecast().best(drafts) == [(1, "a", 0.9), (2, "b", 0.8), (3, "a", 0.9)]


@pytest.mark.parametrize("sources", ["a", "ab"])
@pytest.mark.parametrize(("options", "n"), [({"min_probability": 0.01}, 2), ({}, 32)])
def test_a_chain_ends_where_it_has_become_too_unlikely_for_a_minimum(sources, options, n):
    drafts = drafts_of(**dict.fromkeys(sources, ([1] * 40, [0.05] * 40)))
    assert best(drafts, **options) == [1] * n


def test_a_guess_of_which_nothing_is_known_counts_for_nothing():
    chain = [DraftToken(1, "a", 0.8), DraftToken(2, "a", 0.5), DraftToken(3, "b", None)]
    assert survival(chain) == pytest.approx((0.8, 0.4, 0.0))
