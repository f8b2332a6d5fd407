"""Streaming an answer, and retrying while the server is not ready."""

import pytest

from chat.answer import ChatAnswer
from chat.errors import NotReadyError, RejectedError, UnreachableError
from chat.streaming import LONGEST_DELAY_S, N_RETRIES, AnswerStreamer, retry_delay


class Client:
    """Fails with each of `errors`, then answers."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def stream(self, _request, answer):
        if self.errors:
            raise self.errors.pop(0)
        answer.finish_reason = "stop"
        return
        yield


class Screen:
    def __init__(self):
        self.notes = []
        self.n_ended = 0

    def begin_answer(self, answer, *, shown):
        pass

    def end_answer(self, **_options):
        self.n_ended += 1

    def note(self, text):
        self.notes.append(text)


def stream(*errors, wait_until_reachable=False):
    """The screen, and the seconds that were slept between attempts."""
    screen, slept = Screen(), []
    streamer = AnswerStreamer(
        Client(*errors),
        screen,
        wait_until_reachable=wait_until_reachable,
        clock=lambda: 0.0,
        sleep=slept.append,
    )
    streamer.stream({}, ChatAnswer(lambda: 0.0))
    return screen, slept


def test_a_server_that_is_not_ready_is_asked_again_after_the_time_it_names():
    screen, slept = stream(NotReadyError("Loading.", 5.0))
    assert slept == [5.0]
    assert screen.notes == ["Loading; trying again in 5 s, Ctrl-C gives up."]


def test_an_unreachable_server_is_waited_for_only_on_request():
    with pytest.raises(UnreachableError):
        stream(UnreachableError("refused"))
    _, slept = stream(UnreachableError("refused"), wait_until_reachable=True)
    assert slept == [1.0]


def test_a_rejected_request_is_not_repeated():
    with pytest.raises(RejectedError):
        stream(RejectedError("bad", 400, "bad"))


def test_each_attempt_ends_its_answer_on_the_screen():
    screen, _ = stream(NotReadyError("Loading."), NotReadyError("Loading."))
    assert screen.n_ended == 3


def test_delays_double_from_a_second_up_to_a_limit_and_end():
    assert [retry_delay(n, None) for n in range(N_RETRIES + 1)] == [1, 2, 4, 8, 16, LONGEST_DELAY_S, None]
    assert [retry_delay(0, retry_after) for retry_after in (0.0, 5.0, 1e9)] == [0.0, 5.0, LONGEST_DELAY_S]
