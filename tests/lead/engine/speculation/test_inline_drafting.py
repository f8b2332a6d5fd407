import pytest

from lead.engine.drafters.draft_source import InlineDraft
from lead.engine.speculation.arrivals import FutureDraft
from lead.engine.speculation.constants import DEFAULTS
from lead.engine.speculation.drafts import Drafts
from lead.engine.speculation.inline_drafting import InlineDrafting
from lead.engine.speculation.policy import DraftOrder
from tests.toy_model import GREEDY

STEP_S = 0.05


class Scripted:
    """A drafter whose sequences have the numbers of pending tokens that a test sets."""

    source, n_max = "draft_model", 8

    def __init__(self, **pending):
        self.pending = pending
        self.asked = []
        self.grows = True

    def open(self, sequence, *_):
        return ScriptedDraft(self, sequence)

    def on_round(self, *_):
        return True

    def draft(self, drafts, n_max):
        self.asked.append(n_max)
        return len(drafts), drafts if self.grows else []


class ScriptedDraft(InlineDraft):
    continuation = [1], [0.9]

    def __init__(self, drafter, name):
        self._drafter, self._name = drafter, name

    @property
    def n_pending(self):
        return self._drafter.pending[self._name]

    def leave(self):
        pass


def opened(drafting, name, n_tokens=2):
    drafts = Drafts(name, [1] * n_tokens, {}, 0.0)
    drafting.open(drafts, GREEDY)
    return drafts


class Known:
    """A drafter with these numbers of pending tokens, and its known costs."""

    def __init__(self, token_s=0.001, **pending):
        self.drafter = Scripted(**pending)
        self.drafting = InlineDrafting(self.drafter)
        self.cost = self.drafting.cost
        for n in (1, 2, 128):
            self.cost.learn(n, token_s * n)
        self.sequences = {name: opened(self.drafting, name) for name in pending}

    def offer(self, name="s", n_drafted=0, n_max=8, n_left=100):
        draft = FutureDraft((0.9,) * n_max, n_drafted)
        return self.drafting.offer(self.sequences[name], draft, n_left)

    def draft(self, *, at_once):
        return self.drafting.draft(DraftOrder((self.sequences["s"],), at_once=at_once))

    def timed(self, n_rounds=32):
        """Draft enough rounds to know their duration and how often they are right."""
        for _ in range(n_rounds):
            self.drafting.on_round(1, 1, self.cost.seconds(1))
        return self

    def explored(self, n_steps, mean=0.7):
        """Return how often the drafter was explored."""
        n = 0
        for _ in range(n_steps):
            self.drafting.on_step(STEP_S)
            n += self.drafting.exploration([self.sequences["s"]], mean, STEP_S) is not None
        return n


def test_a_sequence_that_was_just_committed_to_is_offered_at_the_price_of_its_pending_tokens():
    assert Known(s=2).offer().n_pending == 2


@pytest.mark.parametrize(
    ("n_pending", "n_drafted", "offered"),
    [(1, 2, True), (1, 3, False), (None, 0, False)],
    ids=["it can grow", "it is as long as the step can use", "it cannot grow"],
)
def test_a_draft_is_offered_if(n_pending, n_drafted, offered):
    assert bool(Known(s=n_pending).offer(n_drafted=n_drafted, n_max=3)) == offered


def test_what_the_drafter_has_missed_is_paid_for_over_the_rest_of_the_answer():
    catch_up = Known(s=101).offer(n_left=40).catch_up
    assert catch_up == pytest.approx(0.1 / 20)


def test_an_answer_is_expected_to_be_as_long_as_others_were():
    known = Known(s=101)
    for i in range(60):
        known.drafter.pending[f"x{i}"] = 1
        sequence = opened(known.drafting, f"x{i}")
        sequence.tokens += [1] * 10
        known.drafting.close(sequence)
    assert known.offer(n_left=1000).catch_up == pytest.approx(0.1 / 5, rel=0.1)


def test_a_sequence_that_does_not_grow_is_left_alone_until_the_next_step():
    known = Known(s=1, t=1)
    known.drafter.grows = False
    known.draft(at_once=True)
    assert known.offer() is None
    assert known.offer("t")
    known.drafting.on_step(STEP_S)
    assert known.offer()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_prompt_is_read_on_until_its_end_or_in_chunks_between_the_steps_of_others(at_once):
    known = Known(s=5000)
    known.drafter.grows = False
    known.draft(at_once=at_once)
    assert (known.drafter.asked[-1] > 200, bool(known.offer())) == (at_once, at_once)


def test_rounds_are_timed():
    known = Known(s=1)
    for _ in range(20):
        known.drafting.on_round(1, 1, 0.004)
    assert known.cost.seconds(1) == pytest.approx(0.004, rel=0.1)
    assert known.drafting.describe()["n_tokens"] == 20
    assert known.drafting.describe()["seconds"] == pytest.approx(0.08)


def test_exploring_takes_a_small_share_of_the_time():
    known = Known(token_s=STEP_S / 10, s=1).timed()
    n_explored = known.explored(10_000)
    assert n_explored * STEP_S / 10 == pytest.approx(10_000 * STEP_S * DEFAULTS.inline_exploration, rel=0.1)


def test_as_long_as_little_is_known_it_is_looked_at_again_soon():
    known = Known(token_s=STEP_S / 10, s=1)
    assert known.explored(400) > 3 * Known(token_s=STEP_S / 10, s=1).timed().explored(400)


def test_what_is_hopeless_is_known_sooner():
    by_mean = {}
    for mean in (0.2, 0.6):
        known = Known(token_s=STEP_S / 10, s=1).timed(6)
        by_mean[mean] = known.explored(400, mean)
    assert by_mean[0.6] > 3 * by_mean[0.2]


def test_exploring_takes_no_more_than_its_share_from_the_beginning_on():
    known = Known(token_s=STEP_S / 10, s=50).timed()
    price = known.cost.seconds(50)
    n_steps = round(price / DEFAULTS.inline_exploration / STEP_S)
    assert known.explored(n_steps - 10) == 0
    assert known.explored(20) == 1


@pytest.mark.parametrize("n_pending", [2000, None], ids=["it takes too long", "it cannot be drafted for"])
def test_what_is_not_explored(n_pending):
    assert Known(token_s=STEP_S / 10, s=n_pending).explored(5000) == 0
