"""The lead whose sequences a back decodes next."""

import pytest

from back.lead_shares import LeadShares

STEP = 0.002


def serve(shares, n_sequences, n_steps=4000):
    """The share of the time that each lead gets if it always has this number of sequences with work."""
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


@pytest.mark.parametrize(
    ("outcomes", "claims", "n_sequences", "share"),
    [
        pytest.param([], [], [8, 1], 0.5, id="as much, however many sequences the other has"),
        pytest.param([(80, 20), (4, 96)], [], [1, 1], 0.2, id="less with wrong drafts, but never nothing"),
        pytest.param([(80, 20), (70, 30)], [], [1, 1], 0.5, id="as much, if drafts are nearly as good"),
        pytest.param([(60, 40)] * 2, [0.6, 1.0], [1, 8], 0.5, id="no more than its texts show"),
        pytest.param([(60, 40)] * 2, [0.6, None], [1, 8], 0.5, id="no more for a claim of nothing"),
        pytest.param([(80, 20)] * 2, [1.0, 0.2], [1, 1], 0.2, id="less, if it leaves its time to others"),
    ],
)
def test_the_second_lead_gets(outcomes, claims, n_sequences, share):
    shares = LeadShares(2)
    for lead, (n_right, n_wrong) in enumerate(outcomes):
        shares.learn(lead, n_right, n_wrong)
    for lead, value in enumerate(claims):
        shares.claim(lead, value)
    assert serve(shares, n_sequences)[1] == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("away", [None, 90])
def test_a_lead_that_is_away_does_not_count(away):
    """Neither a lead that never came, nor a lead for which drafts were mostly right until it left."""
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


def test_without_work_nobody_is_served():
    assert LeadShares(2).choose([]) == set()
