"""A fleet in steps of a quarter of a second."""

import numpy as np
import pytest

from bench.simulation.coarse_fleet import CoarseFleet, FleetLoad, Pooling, lead_weights
from tests.bench.simulation.fleets import spec, speeds


def fleet(n_leads=4, n_backs=0, leads_per_back=1, pooling=None, **load):
    load = FleetLoad(**{"per_second": 0.4, "n_text": 50.0, **load})
    return CoarseFleet(spec(n_leads, n_backs, leads_per_back), load, speeds(), pooling or Pooling())


def test_what_is_asked_for_is_generated():
    simulated = fleet()
    outcome = simulated.run(600)
    events = simulated.events
    assert events.n_requests == pytest.approx(0.4 * 600, rel=0.2)
    assert events.n_done >= events.n_requests - 16
    assert outcome.tokens_per_second == pytest.approx(events.n_done * 51 / 600, rel=0.2)
    assert outcome.answer_speed == pytest.approx(10, rel=0.05)


def test_a_back_for_each_sequence_makes_answers_faster():
    assert fleet(n_backs=16).run(600).answer_speed == pytest.approx(20, rel=0.05)


def test_a_back_with_several_leads_divides_its_time_among_those_with_work():
    steady = fleet(n_leads=2, n_backs=1, leads_per_back=2).steady
    assert steady(np.array([1, 0])) == pytest.approx([20, 0])
    assert steady(np.array([1, 1])) == pytest.approx([15, 15])


def test_a_lead_asks_no_more_backs_than_the_real_one_would():
    simulated = fleet(n_leads=1, n_backs=40)
    assert simulated._power(np.array([1])) == [4]


def test_more_requests_than_slots_wait():
    simulated = fleet(per_second=10.0)
    simulated.run(60)
    assert simulated.events.wait(0.5) > 1


def test_a_lead_that_fails_cuts_its_answers_and_no_others():
    simulated = fleet(per_second=1.0, mtbf_s=100.0, repair_s=5.0)
    simulated.run(300)
    events = simulated.events
    left = int((simulated._left > 0).sum() + simulated._n_queued.sum())
    assert events.n_cut > 0
    assert events.n_done + events.n_cut + left == events.n_requests


def test_backs_move_to_leads_that_have_more_sequences():
    simulated = fleet(n_leads=2, n_backs=2, pooling=Pooling(period_s=10.0, moving_s=0.0), per_second=0.0)
    simulated._left[1] = 1e9
    simulated.run(60)
    assert simulated._leads_of.tolist() == [[1], [1]]
    assert simulated.events.n_moves == 1


def test_equal_leads_have_equal_weights_and_hopeless_ones_a_quarter():
    assert lead_weights((0.8, 0.8)) == pytest.approx((1, 1), rel=0.05)
    assert lead_weights((0.8, 0.01)) == pytest.approx((1, 0.25), rel=0.1)
