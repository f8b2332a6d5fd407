"""What a simulated back drafts, and when."""

import pytest

from lead.engine.events import Tuned
from lead.simulation.clock import VirtualClock
from lead.simulation.simulated_back import BackSpec, Closed, Extended, Opened, SimulatedBack, Valued
from lead.simulation.text import DraftSkill, Guess, Text

STEP = 0.01


class Scripted(Text):
    """`wrong`: positions where the first guess is wrong and the runner-up right."""

    def __init__(self, wrong=(), confidence=0.9):
        super().__init__(200, 0)
        self._wrong = wrong
        self._confidence = confidence

    def guesses(self, _skill, position):
        first, second = Guess(self.token(position), self._confidence), Guess(-position - 1, 0.09)
        if position in self._wrong:
            first, second = Guess(second.token, first.confidence), Guess(first.token, second.confidence)
        return first, second

    def astray(self, _skill, position):
        return Guess(-1000 - position, self._confidence), Guess(-2000 - position, 0.09)


class BackHarness:
    """A back, and its posts with their times."""

    def __init__(self, text, **spec):
        self.clock = VirtualClock()
        self.posts = []
        spec = BackSpec(STEP, skill=DraftSkill(0.9), **{"n_branches": 0, "slope": 0.0, **spec})
        self.back = SimulatedBack(
            "b", spec, self.clock, lambda draft: self.posts.append((self.clock.now, draft))
        )
        self.back.receive(Opened("s", text, 1))

    def run(self, until):
        """Run until the time of `until` decodes has passed."""
        self.clock.after(until * STEP - self.clock.now, lambda: None)
        self.clock.run(lambda: self.clock.now >= until * STEP)

    @property
    def last(self):
        return self.posts[-1][1]


def tokens(*positions):
    return [Text.token(position) for position in positions]


def test_the_whole_draft_is_posted_after_each_step():
    harness = BackHarness(Scripted())
    harness.run(3.5)
    assert [(round(at, 6), draft.tokens) for at, draft in harness.posts] == [
        (0.01, tokens(1)),
        (0.02, tokens(1, 2)),
        (0.03, tokens(1, 2, 3)),
    ]


def test_drafting_stops_at_n_ahead_of_the_lead():
    harness = BackHarness(Scripted())
    harness.back.receive(Tuned(n_ahead=2, min_confidence=0.0))
    harness.run(5.5)
    assert len(harness.posts) == 2


def test_drafting_stops_below_the_minimum_confidence():
    harness = BackHarness(Scripted(confidence=0.7))
    harness.back.receive(Tuned(n_ahead=16, min_confidence=0.5))
    harness.run(5.5)
    assert harness.last.tokens == tokens(1, 2)


def test_draft_tokens_that_agree_with_the_committed_ones_are_kept():
    harness = BackHarness(Scripted())
    harness.run(3.5)
    harness.back.receive(Extended("s", 3))
    harness.run(5.5)
    assert (harness.last.base, harness.last.tokens) == (3, tokens(3, 4, 5))


def test_updates_are_applied_after_the_decode_under_way():
    harness = BackHarness(Scripted())
    harness.run(3.5)
    harness.back.receive(Extended("s", 3))
    harness.run(4.5)
    assert (harness.last.base, harness.last.tokens) == (1, tokens(1, 2, 3, 4))


def test_a_rejected_draft_is_replaced():
    harness = BackHarness(Scripted(wrong={2}))
    harness.run(3.5)
    assert harness.last.tokens == [*tokens(1), -3, -1003]
    harness.back.receive(Extended("s", 3))
    harness.run(5.5)
    assert (harness.last.base, harness.last.tokens) == (3, tokens(3))


def test_a_branch_that_agrees_with_the_committed_tokens_becomes_the_main_path():
    harness = BackHarness(Scripted(wrong={2}), n_branches=2)
    harness.back.receive(Tuned(n_ahead=4, min_confidence=0.0))
    harness.run(12.5)
    main, branch = harness.last.tokens[:4], harness.last.tokens[4:]
    assert main == [*tokens(1), -3, -1003, -1004]
    assert harness.last.parents[:4] == [-1, 0, 1, 2]
    assert tokens(2, 3, 4) == branch[branch.index(Text.token(2)) :][:3]
    n_posts = len(harness.posts)
    harness.back.receive(Extended("s", 3))
    harness.run(13.5)
    assert harness.posts[n_posts][1].tokens[:2] == tokens(3, 4)


def test_a_closed_sequence_is_not_drafted_for():
    harness = BackHarness(Scripted())
    harness.back.receive(Closed("s"))
    harness.run(3.5)
    assert len(harness.posts) == 1  # from the decode under way when it was closed


def test_a_silent_back_posts_nothing():
    harness = BackHarness(Scripted(), silent_from=0.025)
    harness.run(6.5)
    assert len(harness.posts) == 3  # the decode under way at that time is posted, too


@pytest.mark.parametrize(("slope", "seconds"), [(0.0, 0.01), (0.5, 0.015)])
def test_a_wider_decode_takes_longer(slope, seconds):
    harness = BackHarness(Scripted(), slope=slope)
    harness.back.receive(Opened("other", Scripted(), 1))
    harness.run(4.5)
    first_of_both = next(at for at, draft in harness.posts if draft.sequence == "other")
    assert first_of_both == pytest.approx(STEP + seconds)


class OneAfterTheOther:
    """Serves lead 0 as long as that has work."""

    def __init__(self):
        self.learned = []
        self.charged = []

    def choose(self, waiting):
        return {min(waiting)} if waiting else set()

    def charge(self, n_tokens, seconds):
        self.charged.append((dict(n_tokens), round(seconds, 6)))

    def claim(self, lead, value):
        self.learned.append((lead, value))

    def learn(self, lead, n_right, n_wrong):
        self.learned.append((lead, n_right, n_wrong))


def test_leads_share_a_back_as_it_is_told():
    clock, posts, shares = VirtualClock(), [], OneAfterTheOther()
    spec = BackSpec(STEP, skill=DraftSkill(0.9), n_branches=0, slope=0.0)
    back = SimulatedBack("b", spec, clock, posts.append, shares=shares)
    for lead, name in enumerate("pq"):
        back.receive(Tuned(n_ahead=2, min_confidence=0.0), lead)
        back.receive(Opened(name, Scripted(wrong=[2]), 1), lead)
    clock.after(4.5 * STEP, lambda: None)
    clock.run(lambda: clock.now >= 4.5 * STEP)
    assert [draft.sequence for draft in posts] == ["p", "p", "q", "q"]
    assert shares.charged == [({0: 1}, STEP)] * 2 + [({1: 1}, STEP)] * 2
    back.receive(Extended("q", 3), 1)
    back.receive(Valued(0.5), 1)
    clock.run(lambda: len(shares.learned) == 2)
    assert shares.learned == [(1, 1, 1), (1, 0.5)]
