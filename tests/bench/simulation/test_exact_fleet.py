"""Several leads and backs with the real planner."""

import pytest

from bench.simulation.exact_fleet import ExactFleet
from bench.simulation.fleet_spec import FleetSpec
from lead.simulation.shared_machine import Contention
from lead.simulation.simulated_back import BackSpec
from lead.simulation.step_table import StepTable
from lead.simulation.text import DraftSkill

FLAT = StepTable.of_ratios("flat", 50, 1, 1, 1, 1, 1, 1, 1, 1)
BACK = BackSpec(0.004, 0.001, DraftSkill(0.8))


def run(n_leads, n_backs, leads_per_back=1, n_clients=1, contention=None, **changes):
    spec = FleetSpec(FLAT, BACK, n_leads, n_backs, leads_per_back, n_slots=2, **changes)
    return ExactFleet(spec, [n_clients] * n_leads, n_text=64, contention=contention).run(2.0, 6.0)


def test_without_backs_each_lead_takes_a_step_for_a_token():
    assert run(2, 0).speeds == pytest.approx((20, 20), rel=0.05)


def test_a_back_of_two_leads_drafts_for_both():
    outcome = run(2, 1, leads_per_back=2)
    assert min(outcome.speeds) > 1.5 * 20
    assert 0 < outcome.waste < 1


def test_a_quick_back_of_two_leads_is_about_as_good_as_two():
    one, two = run(2, 1, leads_per_back=2), run(2, 2)
    assert one.tokens_per_second == pytest.approx(two.tokens_per_second, rel=0.15)


def test_leads_on_one_core_share_it():
    outcome = run(2, 0, contention=Contention(one_core_each=True))
    assert outcome.speeds == pytest.approx((10, 10), rel=0.1)


def test_texts_of_a_lead_may_be_harder_to_draft_than_another_lead_s():
    easy, hard = run(2, 2, acceptances=(0.9, 0.2)).speeds
    assert easy > 1.3 * hard
