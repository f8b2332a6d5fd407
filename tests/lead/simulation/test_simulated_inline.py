"""A simulated draft model in the engine keeps the records that a real one keeps."""

from dataclasses import replace

from bench.simulation.scenarios import F16, FLAT
from lead.simulation.cell import Cell, simulate
from lead.simulation.simulated_back import BackSpec
from lead.simulation.simulated_inline import SimulatedInlineDrafter
from lead.simulation.text import DraftSkill, Text
from tests.fakes import GREEDY

SURE = DraftSkill(0.999)


def opened(skill=SURE):
    text = Text(50, 1)
    drafter, committed = SimulatedInlineDrafter(BackSpec(0.01, skill=skill), {"s": text}), [text.token(0)]
    drafter.open("s", GREEDY, committed)
    return drafter, committed


def test_a_round_adds_a_token_and_costs_what_it_decodes():
    drafter, _ = opened()
    done = drafter.draft(["s"], 100)
    assert done.n_tokens == 1
    assert done.drafts["s"][0] == [Text.token(1)]


def test_after_a_draft_was_right_two_tokens_are_pending():
    drafter, committed = opened()
    drafter.draft(["s"], 100)
    drafter.draft(["s"], 100)
    committed += [Text.token(1), Text.token(2), Text.token(3)]
    assert drafter.n_pending("s") == 2


def test_after_a_rejection_one_token_is_pending():
    drafter, committed = opened(DraftSkill(0.01))
    drafter.draft(["s"], 100)
    drafter.draft(["s"], 100)
    committed.append(Text.token(1))
    assert drafter.n_pending("s") == 1


def test_a_good_draft_model_in_the_engine_is_faster_than_none_and_a_bad_one_costs_little():
    def rate(skill, policy="adaptive"):
        spec = BackSpec(0.1 * F16.first, skill=skill)
        return simulate(Cell(F16, inline=spec, n_tokens=128), policy).tokens_per_second

    alone = rate(SURE, "off")
    assert rate(DraftSkill(0.85)) > 1.5 * alone
    assert rate(DraftSkill(0.75, honest=False)) > 0.97 * alone


def test_a_worse_back_beside_a_good_draft_model_in_the_engine_costs_little():
    good, bad = BackSpec(0.03 * FLAT.first, skill=DraftSkill(0.8)), DraftSkill(0.6, 1)
    cell = Cell(FLAT, inline=good, n_tokens=512)
    with_back = replace(cell, backs=(BackSpec(0.03 * FLAT.first, 0.001, bad),))
    rates = [simulate(each, "adaptive").tokens_per_second for each in (cell, with_back)]
    assert rates[1] > 0.96 * rates[0]
