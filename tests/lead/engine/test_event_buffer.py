import pytest

from lead.engine.commands import Cancel, SetBacks
from lead.engine.event_buffer import EventBuffer
from lead.engine.events import Committed, Finished, Pieces, TokenProbabilities
from shared.protocol import Tune
from tests.toy_engine import submit


def token(start, sequence="s", n=1):
    return Committed(sequence=sequence, start=start, tokens=[7] * n)


def n_tokens(events):
    return sum(len(event.tokens) for event in events)


class Steps(EventBuffer):
    """An engine that reports a token after each step."""

    def __init__(self, step_seconds=0.002, has_backs=False):
        super().__init__(self._take)
        self.on_applied(SetBacks(names=["desk"] * has_backs))
        self.now = 0.0
        self.n = 0
        self._step_seconds = step_seconds

    def _take(self, *events):
        self._sent += events

    def step(self, n=1):
        """The number of tokens sent after each of `n` steps."""
        return [n_tokens(self._step()) for _ in range(n)]

    def sent(self, *events, **options):
        """The events that are sent if `events` are passed on now."""
        self._sent = []
        self.pass_on(events, self.now, **options)
        return self._sent

    def _step(self):
        self.now += self._step_seconds
        self.n += 1
        return self.sent(token(self.n))


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
    assert steps.sent(first) == [token(2, n=2), first]
    assert steps.sent(token(2, "t")) == []


@pytest.mark.parametrize(
    "event", [Finished(sequence="s", reason="length"), Tune(n_ahead=1, min_confidence=0)]
)
def test_anything_else_is_sent_at_once_after_what_was_held(event):
    steps = Steps(0.002)
    steps.step(2)
    assert steps.sent(event) == [token(2), event]


def test_what_is_held_is_sent_when_asked_for():
    steps = Steps(0.002)
    steps.step(2)
    assert steps.sent(at_once=True) == [token(2)]


def test_what_was_held_and_cannot_wait_goes_with_the_next():
    steps = Steps(0.002)
    steps.step(2)
    end = Finished(sequence="t", reason="stop")
    steps.hold([end])
    assert steps.sent() == [token(2), end]


def test_what_is_held_of_a_cancelled_sequence_is_dropped():
    steps = Steps(0.002)
    steps.sent(token(1, "t"))
    steps.step(1)
    steps.sent(token(2, "t"), token(2))
    steps.on_applied(Cancel(sequence="t"))
    assert steps.sent(at_once=True) == [token(2)]


def test_tokens_of_an_answer_that_is_read_at_its_end_are_sent_four_times_a_second():
    steps = Steps(0.02)
    steps.on_applied(submit(sequence="s", unread=True))
    sent = steps.step(37)
    assert sent[0] == 1, "the first one at once"
    assert sent[1:] == [*[0] * 11, 12] * 3


def test_tokens_of_many_streams_wait_longer():
    steps = Steps(0.02)
    names = [f"s{i}" for i in range(32)]
    sent = []
    for n in range(1, 12):
        steps.now += 0.02
        sent.append(n_tokens(steps.sent(*[token(n, name) for name in names])))
    assert sent == [32, 0, 0, 0, 0, 160, 0, 0, 0, 0, 160]


def test_a_stream_beside_it_gets_its_tokens_as_usual():
    steps = Steps(0.03)
    steps.on_applied(submit(sequence="t", unread=True))
    first, second = token(1, "t"), token(2, "t")
    steps.sent(first)
    assert steps.sent(second) == []
    assert steps.sent(token(1)) == [second, token(1)]
    assert steps.step(2) == [1, 1]


def test_steps_of_a_sequence_become_one_event():
    steps = Steps()
    steps.hold([token(1), token(1, "t"), token(2), token(2, "t"), token(3)])
    assert steps.sent() == [token(1, n=3), token(1, "t", n=2)]
    steps.hold([token(4)])
    assert steps.sent(at_once=True) == [token(4)]


@pytest.mark.parametrize(
    "said",
    [
        {"rejected": [3], "sources": ["b"]},
        {"n_right": {"b": (1, 0)}},
        {"probabilities": [TokenProbabilities(chosen=0.5, top=[])]},
    ],
)
def test_a_step_of_which_more_is_said_stays_an_event_of_its_own(said):
    steps = Steps()
    step = token(2).model_copy(update=said)
    steps.hold([token(1), step, token(3), token(4)])
    assert steps.sent() == [token(1), step, token(3, n=2)]


def test_what_has_to_go_before_goes_with_it():
    sent, pieces = [], Pieces(first=0, pieces=["61"])
    buffer = EventBuffer(lambda *events: sent.append(events), before=lambda events: [pieces] * len(events))
    buffer.pass_on([token(1)], 0.0)
    assert sent == [(pieces, token(1))]
