from dataclasses import replace

import pytest

from lab.simulation.cell import Cell, simulate
from lab.simulation.clock import VirtualClock
from lab.simulation.machine import StepTable
from lab.simulation.simulated_back import GREEDY, BackSpec, SimulatedBack, simulated_draft_model
from lab.simulation.text import DraftSkill, Text
from shared.protocol import Extend, Open, Tune
from shared.sampling.sampler import RankedToken

STEP = 0.01
KEY = 7
FLAT = StepTable("flat", ((1, 0.06), (16, 0.066)))
SURE = DraftSkill(0.999)


class Scripted(Text):
    """A text. `wrong`: positions at which the first guess is wrong and the runner-up is right."""

    def __init__(self, wrong=(), n_tokens=200):
        super().__init__(n_tokens, 0)
        self._wrong = wrong

    def guesses(self, _skill, position):
        tokens = [self.token(position), self.token(position) + 1]
        if position in self._wrong:
            tokens.reverse()
        return RankedToken(tokens[0], 0.9), RankedToken(tokens[1], 0.09)


class BackHarness:
    """A back, and its posts. Their times are counted in decodes."""

    def __init__(self, text, **spec):
        self.clock = VirtualClock()
        self.posts = []
        spec = BackSpec(STEP, **{"n_branches": 0, "slope": 0.0, **spec})
        self.back = SimulatedBack("b", spec, self.clock, self._post, {KEY: text}, n_slots=2)
        self.open("s")

    def open(self, sequence):
        self.back.receive(Open(sequence=sequence, sampling=GREEDY, tokens=[KEY]))

    def extend(self, start, end):
        self.back.receive(Extend(sequence="s", start=start, tokens=right(*range(start, end))))

    def run(self, until):
        over = []
        self.clock.after(until * STEP - self.clock.now, lambda: over.append(True))
        self.clock.run(lambda: bool(over))

    def _post(self, draft):
        self.posts.append((round(self.clock.now / STEP, 6), draft))

    @property
    def last(self):
        return self.posts[-1][1]


def right(*positions):
    return [Text.token(position) for position in positions]


def test_the_whole_draft_is_posted_after_each_step():
    harness = BackHarness(Scripted())
    harness.run(3.5)
    drafts = [(at, draft.tokens) for at, draft in harness.posts]
    assert drafts == [(1, right(1)), (2, right(1, 2)), (3, right(1, 2, 3))]


def test_updates_are_applied_after_the_decode_under_way():
    harness = BackHarness(Scripted())
    harness.run(3.5)
    harness.extend(1, 3)
    harness.run(4.5)
    assert (harness.last.base, harness.last.tokens) == (1, right(1, 2, 3, 4))
    harness.run(5.5)
    assert (harness.last.base, harness.last.tokens) == (3, right(3, 4, 5))


@pytest.mark.parametrize(("can_interrupt", "answered_at"), [(True, 5.5), (False, 6.0)])
def test_after_a_wrong_token_all_are_wrong_until_the_lead_says_what_is_right(can_interrupt, answered_at):
    harness = BackHarness(Scripted(wrong={2}), can_interrupt=can_interrupt)
    harness.run(4.5)
    assert harness.last.tokens[0] == Text.token(1)
    assert not {*harness.last.tokens[1:]} & {*right(*range(2, 6))}
    harness.extend(1, 3)
    harness.run(6.5)
    answers = [(at, draft.tokens) for at, draft in harness.posts if draft.base == 3]
    assert answers[0] == (answered_at, right(3))


def test_a_branch_begins_with_a_runner_up_and_goes_on_rightly():
    harness = BackHarness(Scripted(wrong={2}), n_branches=2)
    harness.back.receive(Tune(n_ahead=4, min_confidence=0.0))
    harness.run(12.5)
    assert {*right(1, 2, 3, 4)} <= {*harness.last.tokens}


def test_a_silent_back_posts_nothing():
    harness = BackHarness(Scripted(), silent_from=0.025)
    harness.run(6.5)
    assert len(harness.posts) == 3  # the decode under way at that time is posted, too


@pytest.mark.parametrize(("slope", "seconds"), [(0.0, 1.0), (0.5, 1.5)])
def test_a_wider_decode_takes_longer(slope, seconds):
    harness = BackHarness(Scripted(), slope=slope)
    harness.open("other")
    harness.run(4.5)
    assert next(at for at, draft in harness.posts if draft.sequence == "other") == 1 + seconds


def test_a_draft_model_in_the_engine_guesses_too():
    text = Scripted(wrong={3})
    drafter = simulated_draft_model(BackSpec(STEP), {KEY: text}, 1)
    draft = drafter.open("s", GREEDY, [KEY])
    assert [drafter.draft([draft], 100)[0] for _ in range(3)] == [1, 1, 1]
    assert draft.continuation[0] == [*right(1, 2), Text.token(3) + 1]


def test_a_good_draft_model_in_the_engine_is_faster_than_none_and_a_bad_one_costs_little():
    def rate(skill, policy="adaptive"):
        spec = BackSpec(0.1 * FLAT.seconds(1), skill=skill)
        return simulate(Cell(FLAT, inline=spec, n_tokens=128), policy)

    alone = rate(SURE, "off")
    assert rate(DraftSkill(0.85)) > 1.5 * alone
    assert rate(DraftSkill(0.75, honest=False)) > 0.97 * alone


def test_a_worse_back_beside_a_good_draft_model_in_the_engine_costs_little():
    good, bad = BackSpec(0.03 * FLAT.seconds(1), skill=DraftSkill(0.8)), DraftSkill(0.6, 1)
    cell = Cell(FLAT, inline=good, n_tokens=512)
    with_back = replace(cell, backs=(BackSpec(0.03 * FLAT.seconds(1), 0.001, bad),))
    rates = [simulate(each, "adaptive") for each in (cell, with_back)]
    assert rates[1] > 0.96 * rates[0]
