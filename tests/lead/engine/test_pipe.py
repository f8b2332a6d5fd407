import fcntl
import socket
import threading

import pytest

from lead.engine.commands import Cancel, Submit
from lead.engine.events import Finished, decode_event, encode_line
from lead.engine.pipe import EnginePipe, low_numbered
from shared.descriptors import raise_limit
from shared.sampling.parameters import SamplingParameters

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
@pytest.mark.parametrize("unread", [[], [Finished(sequence="s", reason="stop")]], ids=["", "events unread"])
def test_the_front_s_end_ends_a_wait(ends, wait, unread):
    front, pipe = ends
    pipe.send(*unread)
    front.close()  # with unread data the kernel resets the connection
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


def test_an_inherited_descriptor_that_select_cannot_take_gets_a_low_number():
    raise_limit()
    mine, theirs = socket.socketpair()
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD, 1024)
    theirs.close()
    with mine, low_numbered(high) as connection:
        assert connection.fileno() < 1024
        mine.sendall(encode_line(ONE))
        assert EnginePipe(connection).drain(60.0) == [ONE]
