"""A simulated back: what it drafts when."""

import pytest

from bench.simulation.back import Back, BackSpec, Closed, Extended, Opened
from bench.simulation.clock import Clock
from bench.simulation.text import DraftSkill, Guess, Text
from lead.engine.events import Tuned

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


class Desk:
    """A back and what it posted, with the times."""

    def __init__(self, text, **spec):
        self.clock = Clock()
        self.posts = []
        spec = BackSpec(STEP, skill=DraftSkill(0.9), **{"n_branches": 0, "slope": 0.0, **spec})
        self.back = Back("b", spec, self.clock, lambda draft: self.posts.append((self.clock.now, draft)))
        self.back.tell(Opened("s", text, 1))

    def run(self, until):
        """Run until the time of `until` decodes has passed."""
        self.clock.after(until * STEP - self.clock.now, lambda: None)
        self.clock.run(lambda: self.clock.now >= until * STEP)

    @property
    def last(self):
        return self.posts[-1][1]


def tokens(*positions):
    return [Text.token(position) for position in positions]


def test_it_posts_its_whole_tail_after_each_step():
    desk = Desk(Scripted())
    desk.run(3.5)
    assert [(round(at, 6), draft.tokens) for at, draft in desk.posts] == [
        (0.01, tokens(1)),
        (0.02, tokens(1, 2)),
        (0.03, tokens(1, 2, 3)),
    ]


def test_it_stops_where_the_lead_says():
    desk = Desk(Scripted())
    desk.back.tell(Tuned(n_ahead=2, min_confidence=0.0))
    desk.run(5.5)
    assert len(desk.posts) == 2


def test_it_stops_where_it_is_not_sure_enough():
    desk = Desk(Scripted(confidence=0.7))
    desk.back.tell(Tuned(n_ahead=16, min_confidence=0.5))
    desk.run(5.5)
    assert desk.last.tokens == tokens(1, 2)


def test_what_agrees_with_the_committed_tokens_is_kept():
    desk = Desk(Scripted())
    desk.run(3.5)
    desk.back.tell(Extended("s", 3))
    desk.run(5.5)
    assert (desk.last.base, desk.last.tokens) == (3, tokens(3, 4, 5))


def test_news_wait_for_the_end_of_a_decode():
    desk = Desk(Scripted())
    desk.run(3.5)
    desk.back.tell(Extended("s", 3))
    desk.run(4.5)
    assert (desk.last.base, desk.last.tokens) == (1, tokens(1, 2, 3, 4))


def test_after_a_rejection_it_begins_anew():
    desk = Desk(Scripted(wrong={2}))
    desk.run(3.5)
    assert desk.last.tokens == [*tokens(1), -3, -1003]
    desk.back.tell(Extended("s", 3))
    desk.run(5.5)
    assert (desk.last.base, desk.last.tokens) == (3, tokens(3))


def test_a_branch_that_the_text_takes_becomes_the_main_path():
    desk = Desk(Scripted(wrong={2}), n_branches=2)
    desk.back.tell(Tuned(n_ahead=4, min_confidence=0.0))
    desk.run(12.5)
    main, branch = desk.last.tokens[:4], desk.last.tokens[4:]
    assert main == [*tokens(1), -3, -1003, -1004]
    assert desk.last.parents[:4] == [-1, 0, 1, 2]
    assert tokens(2, 3, 4) == branch[branch.index(Text.token(2)) :][:3]
    n_posts = len(desk.posts)
    desk.back.tell(Extended("s", 3))
    desk.run(13.5)
    assert desk.posts[n_posts][1].tokens[:2] == tokens(3, 4)


def test_after_its_end_a_sequence_is_not_drafted_for():
    desk = Desk(Scripted())
    desk.back.tell(Closed("s"))
    desk.run(3.5)
    assert len(desk.posts) == 1  # what was being decoded when it was told


def test_a_stopped_back_says_nothing_more():
    desk = Desk(Scripted(), silent_from=0.025)
    desk.run(6.5)
    assert len(desk.posts) == 3  # the decode under way when it stopped, too


@pytest.mark.parametrize(("slope", "seconds"), [(0.0, 0.01), (0.5, 0.015)])
def test_a_wider_decode_takes_longer(slope, seconds):
    desk = Desk(Scripted(), slope=slope)
    desk.back.tell(Opened("other", Scripted(), 1))
    desk.run(4.5)
    first_of_both = next(at for at, draft in desk.posts if draft.sequence == "other")
    assert first_of_both == pytest.approx(STEP + seconds)
