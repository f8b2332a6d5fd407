"""Tokens of short steps go to the front together, but nobody waits for them."""

import pytest

from lead.engine.events import Committed, Finished, TokenProbabilities
from lead.engine.held_events import HeldEvents
from shared.protocol import Tune
from tests.fakes import submit


def token(start, sequence="s", n=1):
    return Committed(sequence=sequence, start=start, tokens=[7] * n)


def n_tokens(events):
    return sum(len(event.tokens) for event in events)


class Steps:
    """Tells of a token after each step."""

    def __init__(self, step_seconds, has_backs=False):
        self.held = HeldEvents()
        self.held.has_backs = has_backs
        self.now = 0.0
        self.n = 0
        self._step_seconds = step_seconds

    def step(self, n=1):
        """How many tokens were sent after each of `n` steps."""
        return [n_tokens(self._step()) for _ in range(n)]

    def _step(self):
        self.now += self._step_seconds
        self.n += 1
        return self.held.pass_on([token(self.n)], self.now)


def test_tokens_of_short_steps_are_sent_together():
    steps = Steps(0.008)
    sent = steps.step(43)
    assert sent[0] == 1, "the first one at once"
    assert sent[1:] == [0, 0, 0, 0, 0, 6] * 7


@pytest.mark.parametrize("seconds", [0.026, 0.05, 2.0])
def test_tokens_of_longer_steps_are_sent_at_once(seconds):
    assert set(Steps(seconds).step(20)) == {1}


def test_tokens_are_sent_at_once_while_a_back_is_connected():
    assert set(Steps(0.002, has_backs=True).step(20)) == {1}


def test_the_first_token_of_each_sequence_is_sent_at_once_with_all_that_was_held():
    steps = Steps(0.002)
    steps.step(3)
    first = token(1, "t")
    assert steps.held.pass_on([first], steps.now) == [token(2, n=2), first]
    assert steps.held.pass_on([token(2, "t")], steps.now) == []


@pytest.mark.parametrize(
    "event", [Finished(sequence="s", reason="length"), Tune(n_ahead=1, min_confidence=0)]
)
def test_anything_else_is_sent_at_once_after_what_was_held(event):
    steps = Steps(0.002)
    steps.step(2)
    assert steps.held.pass_on([event], steps.now) == [token(2), event]


def test_what_is_held_is_sent_when_asked_for():
    steps = Steps(0.002)
    steps.step(2)
    assert steps.held.pass_on([], steps.now, at_once=True) == [token(2)]


def test_what_was_held_and_cannot_wait_goes_with_the_next():
    steps = Steps(0.002)
    steps.step(2)
    end = Finished(sequence="t", reason="stop")
    steps.held.hold([end])
    assert steps.held.pass_on([], steps.now) == [token(2), end]


def test_what_is_held_of_a_cancelled_sequence_is_dropped():
    steps = Steps(0.002)
    steps.held.pass_on([token(1, "t")], 0.0)
    steps.step(1)
    steps.held.pass_on([token(2, "t"), token(2)], steps.now)
    steps.held.drop("t")
    assert steps.held.pass_on([], steps.now, at_once=True) == [token(2)]


def test_tokens_of_an_answer_that_is_read_at_its_end_are_sent_four_times_a_second():
    steps = Steps(0.02)
    steps.held.open(submit(sequence="s", unread=True))
    sent = steps.step(37)
    assert sent[0] == 1, "the first one at once"
    assert sent[1:] == [*[0] * 11, 12] * 3


def test_tokens_of_many_streams_wait_longer():
    steps = Steps(0.02)
    names = [f"s{i}" for i in range(32)]
    sent = []
    for n in range(1, 12):
        steps.now += 0.02
        sent.append(n_tokens(steps.held.pass_on([token(n, name) for name in names], steps.now)))
    assert sent == [32, 0, 0, 0, 0, 160, 0, 0, 0, 0, 160]


def test_a_stream_beside_it_gets_its_tokens_as_usual():
    steps = Steps(0.03)
    steps.held.open(submit(sequence="t", unread=True))
    first, second = token(1, "t"), token(2, "t")
    steps.held.pass_on([first], steps.now)
    assert steps.held.pass_on([second], steps.now) == []
    assert steps.held.pass_on([token(1)], steps.now) == [second, token(1)]
    assert steps.step(2) == [1, 1]


def test_steps_of_a_sequence_become_one_event():
    held = HeldEvents()
    held.hold([token(1), token(1, "t"), token(2), token(2, "t"), token(3)])
    assert held.pass_on([], 0.0) == [token(1, n=3), token(1, "t", n=2)]
    held.hold([token(4)])
    assert held.pass_on([], 0.0, at_once=True) == [token(4)]


@pytest.mark.parametrize(
    "said",
    [
        {"rejected": [3], "sources": ["b"]},
        {"n_right": {"b": (1, 0)}},
        {"probabilities": [TokenProbabilities(chosen=0.5, top=[])]},
    ],
)
def test_a_step_of_which_more_is_said_stays_an_event_of_its_own(said):
    held = HeldEvents()
    step = token(2).model_copy(update=said)
    held.hold([token(1), step, token(3), token(4)])
    assert held.pass_on([], 0.0) == [token(1), step, token(3, n=2)]
