"""What drafting in the engine costs, and for whom it is offered."""

import pytest

from lead.engine.drafters.inline_drafter import InlineRound
from lead.engine.speculation.constants import DEFAULTS
from lead.engine.speculation.inline_drafting import InlineDrafting, InlineOffer
from tests.fakes import GREEDY

STEP_S = 0.05


class Scripted:
    """Each sequence has as many pending tokens as a test says."""

    source, n_most = "draft_model", 8

    def __init__(self, **pending):
        self.pending = pending
        self.asked = []
        self.grows = True

    def open(self, *_):
        pass

    def close(self, sequence):
        self.pending.pop(sequence)

    def place(self, *_):
        pass

    def on_round(self, *_):
        return True

    def n_pending(self, sequence):
        return self.pending.get(sequence)

    def draft(self, sequences, n_most):
        self.asked.append((sequences, n_most))
        drafts = {sequence: ([1], [0.9]) for sequence in sequences} if self.grows else {}
        return InlineRound(len(sequences), drafts)


def drafting(token_s=0.001, **pending):
    drafting = InlineDrafting(Scripted(**pending))
    for n in (1, 2, 128):
        drafting.cost.learn(n, token_s * n)
    for sequence in pending:
        drafting.open(sequence, GREEDY, [1, 2])
    return drafting


def offer(drafting, sequence="s", probabilities=(), n_useful=50, n_left=100):
    return drafting.offer(sequence, probabilities, 0.7, n_useful, n_left)


def test_a_sequence_that_was_just_committed_to_is_offered_at_the_price_of_its_pending_tokens():
    assert offer(drafting(s=2)) == InlineOffer((), 0.7, 8, 2)


def test_what_the_drafter_has_missed_is_paid_for_over_the_rest_of_the_answer():
    catch_up = offer(drafting(s=101), n_left=40).catch_up
    assert catch_up == pytest.approx(0.1 / 20)


def test_an_answer_is_expected_to_be_as_long_as_others_were():
    known = drafting(s=101)
    for i in range(60):
        known.drafter.pending[f"x{i}"] = 1
        known.open(f"x{i}", GREEDY, [1, 2])
        known.close(f"x{i}", 2 + 10)
    assert offer(known, n_left=1000).catch_up == pytest.approx(0.1 / 5, rel=0.1)


def test_no_more_is_offered_than_the_step_can_use():
    known = drafting(s=1)
    assert offer(known, n_useful=3).n_most == 3
    assert offer(known, probabilities=(0.9, 0.9, 0.9), n_useful=3) is None


def test_a_draft_that_cannot_grow_is_not_offered():
    assert offer(drafting(s=None)) is None


def test_a_sequence_that_does_not_grow_is_left_alone_until_the_next_step():
    known = drafting(s=1, t=1)
    known.drafter.grows = False
    known.draft(known.order(["s"], 1, 0.0, alone=True))
    assert offer(known) is None
    assert offer(known, "t")
    known.on_step(STEP_S)
    assert offer(known)


def test_a_prompt_is_read_on_until_its_end_if_nobody_else_waits():
    known = drafting(s=5000)
    known.drafter.grows = False
    known.draft(known.order(["s"], 1, 0.0, alone=True))
    assert offer(known)


def test_a_prompt_is_read_in_chunks_between_the_steps_of_others():
    known = drafting(s=5000)
    known.drafter.grows = False
    known.draft(known.order(["s"], 1, 0.0, alone=False))
    assert known.drafter.asked[-1][1] < 200
    assert offer(known) is None


def test_rounds_are_timed():
    known = drafting(s=1)
    for _ in range(20):
        known.on_round(1, 1, 0.004)
    assert known.cost.seconds(1) == pytest.approx(0.004, rel=0.1)
    assert known.describe()["n_tokens"] == 20
    assert known.describe()["seconds"] == pytest.approx(0.08)


def timed(known):
    """So many rounds were drafted that what they take and how often they are right is known."""
    for _ in range(32):
        known.on_round(1, 1, known.cost.seconds(1))
    return known


def explored(known, n_steps):
    n = 0
    for _ in range(n_steps):
        known.on_step(STEP_S)
        n += known.exploration(["s"], STEP_S) is not None
    return n


def test_exploring_takes_a_small_share_of_the_time():
    known = timed(drafting(token_s=STEP_S / 10, s=1))
    n_explored = explored(known, 10_000)
    assert n_explored * STEP_S / 10 == pytest.approx(10_000 * STEP_S * DEFAULTS.inline_exploration, rel=0.1)


def test_as_long_as_little_is_known_it_is_looked_at_again_soon():
    known = drafting(token_s=STEP_S / 10, s=1)
    assert explored(known, 400) > 3 * explored(timed(drafting(token_s=STEP_S / 10, s=1)), 400)


def test_what_is_hopeless_is_known_sooner():
    by_mean = {}
    for mean in (0.2, 0.6):
        known = drafting(token_s=STEP_S / 10, s=1)
        known.offer("s", (), mean, 9, 99)
        for _ in range(6):
            known.on_round(1, 1, STEP_S / 10)
        by_mean[mean] = explored(known, 400)
    assert by_mean[0.6] > 3 * by_mean[0.2]


def test_exploring_takes_no_more_than_its_share_from_the_beginning_on():
    known = timed(drafting(token_s=STEP_S / 10, s=50))
    price = known.cost.seconds(50)
    n_steps = round(price / DEFAULTS.inline_exploration / STEP_S)
    assert explored(known, n_steps - 10) == 0
    assert explored(known, 20) == 1


def test_what_takes_too_long_is_not_explored():
    assert explored(drafting(token_s=STEP_S / 10, s=2000), 5000) == 0


def test_only_sequences_that_can_be_drafted_for_are_explored():
    assert explored(drafting(s=None), 100) == 0
