"""The text is the lead's alone: whatever happens to its backs, every token is the same."""

import signal
from contextlib import ExitStack

import pytest

from tests.real.client import ask, ask_until_accepted, backs, repeat_until, stream
from tests.real.processes import back_of, frozen_engine, kill

pytestmark = pytest.mark.real

GREEDY, SAMPLED = {"temperature": 0}, {"temperature": 0.8, "seed": 7}
"""Backs do not depend on the sampling: tests of them use only one of the two."""


@pytest.fixture(scope="module")
def greedy_text(served):
    """The lead's text without backs."""
    return alone(served[1], GREEDY)


@pytest.fixture(scope="module")
def sampled_text(served):
    """The lead's text without backs."""
    return alone(served[1], SAMPLED)


def alone(url, sampling):
    assert backs(url) == []
    reply = ask(url, **sampling)
    assert reply.n_drafted == 0
    return reply.text


def accepted_from(name):
    return lambda reply: name in reply.sources


def test_a_back_with_a_short_context_drafts_from_a_window_and_changes_nothing(served, greedy_text):
    lead, url = served
    with back_of(lead, url, "short", "--ctx-size", "256", "--parallel", "4") as back:
        assert ask_until_accepted(url, **GREEDY).text == greedy_text
        assert back.process.poll() is None


def test_a_back_stopped_in_mid_answer_changes_nothing_and_drafts_again_when_it_goes_on(
    served, greedy_text, sampled_text
):
    lead, url = served

    def answer():
        with back_of(lead, url, "sleeper") as back, stream(url, **GREEDY) as answer:
            answer.until(accepted_from("sleeper"))
            with frozen_engine(lead):
                back.signal(signal.SIGSTOP)
            reply = answer.rest()
            assert ask(url, **SAMPLED).n_accepted == 0
            back.signal(signal.SIGCONT)
            assert ask_until_accepted(url, **SAMPLED).text == sampled_text
            return reply

    assert repeat_until(accepted_from("sleeper"), answer).text == greedy_text


def test_a_back_killed_and_another_joining_in_mid_answer_change_nothing(served, sampled_text):
    lead, url = served

    def answer():
        with ExitStack() as stack:
            first = stack.enter_context(back_of(lead, url, "first"))
            answer = stack.enter_context(stream(url, **SAMPLED)).until(accepted_from("first"))
            with frozen_engine(lead):
                since = lead.n_lines()
                kill(first)
                lead.wait_for("back first .*left", since=since)
                stack.enter_context(back_of(lead, url, "second"))
            return answer.rest()

    assert repeat_until(lambda reply: {"first", "second"} <= reply.sources, answer).text == sampled_text
