"""The text is the lead's alone: whatever happens to its backs, every token is the same."""

import signal
from contextlib import ExitStack

import pytest

from tests.real.client import ask, ask_until_accepted, backs, repeat_until, stream
from tests.real.processes import back_of, frozen_engine, kill

pytestmark = pytest.mark.real

SAMPLINGS = {"greedy": {"temperature": 0}, "sampled": {"temperature": 0.8, "seed": 7}}
GREEDY = pytest.mark.parametrize("plain", ["greedy"], indirect=True)
SAMPLED = pytest.mark.parametrize("plain", ["sampled"], indirect=True)
"""What becomes of backs has nothing to do with sampling: one of both is enough there."""


@pytest.fixture(scope="module", params=SAMPLINGS)
def plain(request, served):
    """(sampling parameters, what the lead says with them when it is alone)."""
    _, url = served
    assert backs(url) == []
    sampling = SAMPLINGS[request.param]
    reply = ask(url, **sampling)
    assert reply.n_drafted == 0
    return sampling, reply.text


def accepted_from(name):
    return lambda reply: name in reply.sources


def test_a_back_is_accepted_and_changes_nothing(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "helper"):
        reply = ask_until_accepted(url, **sampling)
    assert reply.text == text


@GREEDY
def test_a_back_stopped_in_mid_answer_changes_nothing(served, plain):
    lead, url = served
    sampling, text = plain

    def answer():
        with back_of(lead, url, "sleeper") as back, stream(url, **sampling) as answer:
            answer.until(accepted_from("sleeper"))
            with frozen_engine(lead):
                back.signal(signal.SIGSTOP)
            return answer.rest()

    assert repeat_until(accepted_from("sleeper"), answer).text == text


@SAMPLED
def test_a_back_that_was_stopped_drafts_again_when_it_goes_on(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "sleeper") as back:
        back.signal(signal.SIGSTOP)
        assert ask(url, **sampling).n_accepted == 0
        back.signal(signal.SIGCONT)
        reply = ask_until_accepted(url, **sampling)
    assert reply.text == text


@SAMPLED
def test_a_back_killed_and_another_joining_in_mid_answer_change_nothing(served, plain):
    lead, url = served
    sampling, text = plain

    def answer():
        with ExitStack() as stack:
            first = stack.enter_context(back_of(lead, url, "first"))
            answer = stack.enter_context(stream(url, **sampling)).until(accepted_from("first"))
            with frozen_engine(lead):
                kill(first)
                stack.enter_context(back_of(lead, url, "second"))
            return answer.rest()

    assert repeat_until(lambda reply: {"first", "second"} <= reply.sources, answer).text == text


@GREEDY
def test_a_back_with_a_short_context_drafts_from_a_window(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "short", "--ctx-size", "256", "--parallel", "4") as back:
        reply = ask_until_accepted(url, **sampling)
        assert back.process.poll() is None
    assert reply.text == text
