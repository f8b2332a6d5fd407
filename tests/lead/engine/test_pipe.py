"""The engine's end of the socket pair: lines in, events out, and the front's end is noticed.

Tokens of short steps go to the front together, but nobody waits for them."""

import fcntl
import socket
import threading

import pytest

from lead.engine.commands import Cancel, SetBacks, Submit
from lead.engine.events import Committed, Finished, TokenProbabilities, decode_event, encode_line
from lead.engine.pipe import EnginePipe, Pipe, low_numbered
from shared.descriptors import raise_limit
from shared.protocol import Tune
from shared.sampling.parameters import SamplingParameters
from tests.fakes import submit

ONE, TWO = Cancel(sequence="one"), Cancel(sequence="two")


@pytest.fixture
def ends():
    front, engine = socket.socketpair()
    with front, engine:
        front.settimeout(10)
        yield front, EnginePipe(engine)


def test_all_commands_that_have_arrived_come_at_once_and_in_order(ends):
    front, pipe = ends
    front.sendall(encode_line(ONE) + encode_line(TWO))
    assert pipe.drain(0.0) == [ONE, TWO]
    assert pipe.drain(0.0) == []


def test_a_command_larger_than_one_read_arrives_whole(ends):
    front, pipe = ends
    request = Submit(sequence="s", tokens=list(range(100_000)), sampling=SamplingParameters(seed=1))
    sender = threading.Thread(target=front.sendall, args=[encode_line(request)])
    sender.start()
    assert pipe.drain(None) == [request]
    sender.join()


@pytest.mark.parametrize("wait", [None, 60.0])
def test_a_wait_ends_with_the_first_whole_command(ends, wait):
    front, pipe = ends
    line = encode_line(ONE)
    front.sendall(line[:5])
    assert pipe.drain(0.0) == []
    sender = threading.Thread(target=front.sendall, args=[line[5:]])
    sender.start()
    assert pipe.drain(wait) == [ONE]
    sender.join()


def test_half_a_line_does_not_end_a_wait_but_its_time_does(ends):
    front, pipe = ends
    line = encode_line(ONE)
    front.sendall(line[:5])
    assert pipe.drain(0.001) == []
    front.sendall(line[5:])
    assert pipe.drain(60.0) == [ONE]


def test_it_is_readable_when_a_command_or_the_front_s_end_has_come(ends):
    front, pipe = ends
    assert not pipe.readable
    front.sendall(encode_line(ONE))
    assert pipe.readable
    pipe.drain(0.0)
    assert not pipe.readable
    front.close()
    assert pipe.readable


@pytest.mark.parametrize("wait", [None, 60.0])
def test_the_front_s_end_ends_a_wait(ends, wait):
    front, pipe = ends
    front.close()
    assert pipe.drain(wait) == []
    assert not pipe.open


def test_commands_sent_before_the_front_s_end_are_still_taken(ends):
    front, pipe = ends
    front.sendall(encode_line(ONE))
    front.close()
    assert pipe.drain(None) == [ONE]
    assert not pipe.open


def test_events_arrive_as_lines(ends):
    front, pipe = ends
    events = [Finished(sequence=name, reason="stop") for name in "st"]
    pipe.send(*events)
    assert [decode_event(line) for line in front.recv(1 << 16).splitlines()] == events


def test_sending_to_a_front_that_is_gone_closes_the_pipe(ends):
    front, pipe = ends
    front.close()
    pipe.send(Finished(sequence="s", reason="stop"))
    assert not pipe.open


def test_a_front_that_left_with_events_unread_is_gone(ends):
    front, pipe = ends
    pipe.send(Finished(sequence="s", reason="stop"))
    front.close()  # with unread data the kernel resets the connection
    assert pipe.drain(None) == []
    assert not pipe.open


def test_an_inherited_descriptor_that_select_cannot_take_gets_a_low_number():
    raise_limit()
    mine, theirs = socket.socketpair()
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD, 1024)
    theirs.close()
    with mine, low_numbered(high) as connection:
        assert connection.fileno() < 1024
        mine.sendall(encode_line(ONE))
        assert EnginePipe(connection).drain(60.0) == [ONE]


# When events go


def token(start, sequence="s", n=1):
    return Committed(sequence=sequence, start=start, tokens=[7] * n)


def n_tokens(events):
    return sum(len(event.tokens) for event in events)


class Steps(Pipe):
    """A pipe whose engine tells of a token after each step."""

    def __init__(self, step_seconds=0.002, has_backs=False):
        super().__init__()
        self.on_applied(SetBacks(names=["desk"] * has_backs))
        self.now = 0.0
        self.n = 0
        self._step_seconds = step_seconds

    def send(self, *events):
        self._sent += events

    def drain(self, _wait):
        return []

    def step(self, n=1):
        """How many tokens were sent after each of `n` steps."""
        return [n_tokens(self._step()) for _ in range(n)]

    def sent(self, *events, **options):
        """What is sent when `events` are passed on now."""
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
