"""Whose sequences are decoded next."""

import pytest

from back.lead_shares import LeadShares

STEP = 0.002


def serve(shares, n_sequences, n_steps=4000):
    """Seconds for each lead, each of which has this number of sequences with work all the time."""
    seconds = [0.0] * len(n_sequences)
    for _ in range(n_steps):
        waiting = [lead for lead, n in enumerate(n_sequences) if n]
        served = {lead: n_sequences[lead] for lead in shares.choose(waiting)}
        assert served
        shares.charge(served, STEP)
        for lead, n in served.items():
            seconds[lead] += STEP * n / sum(served.values())
    total = sum(seconds)
    return [each / total for each in seconds]


def test_equal_leads_are_always_served_together():
    shares = LeadShares(3)
    for _ in range(100):
        assert shares.choose([0, 1, 2]) == {0, 1, 2}
        shares.charge({0: 1, 1: 1, 2: 1}, STEP)


def test_a_lead_with_many_sequences_gets_no_more_time_than_one_with_one():
    assert serve(LeadShares(2), [8, 1]) == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize("away", [None, 90])
def test_a_lead_that_is_away_does_not_count(away):
    """Neither one that never came, nor one for which drafts were mostly right until it went."""
    shares = LeadShares(3)
    if away:
        shares.learn(2, away, 100 - away)
    shares.learn(0, 20, 80)
    shares.learn(1, 18, 82)
    assert serve(shares, [1, 1, 0]) == pytest.approx([0.5, 0.5, 0.0], abs=0.02)
    shares.learn(1, 10, 90)
    assert serve(shares, [1, 1, 0])[1] < 0.45


def test_a_lead_that_was_away_has_no_claim_to_the_time_since():
    shares = LeadShares(2)
    serve(shares, [1, 0])
    assert serve(shares, [1, 1]) == pytest.approx([0.5, 0.5], abs=0.02)


def test_a_lead_whose_drafts_are_mostly_wrong_gets_less_but_never_nothing():
    shares = LeadShares(2)
    shares.learn(0, 80, 20)
    shares.learn(1, 4, 96)
    assert serve(shares, [1, 1])[1] == pytest.approx(0.2, abs=0.02)


def test_small_differences_do_not_count():
    shares = LeadShares(2)
    shares.learn(0, 80, 20)
    shares.learn(1, 70, 30)
    assert serve(shares, [1, 1]) == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize("claim", [1.0, None])
def test_a_lead_that_claims_more_than_its_texts_show_gets_no_more(claim):
    shares = LeadShares(2)
    shares.learn(0, 60, 40)
    shares.learn(1, 60, 40)
    shares.claim(0, 0.6)
    shares.claim(1, claim)
    assert serve(shares, [1, 8]) == pytest.approx([0.5, 0.5], abs=0.02)


def test_a_lead_may_leave_its_time_to_others():
    shares = LeadShares(2)
    for lead in (0, 1):
        shares.learn(lead, 80, 20)
    shares.claim(1, 0.2)
    assert serve(shares, [1, 1])[1] == pytest.approx(0.2, abs=0.02)


def test_without_work_nobody_is_served():
    assert LeadShares(2).choose([]) == set()
