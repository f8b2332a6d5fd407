"""The text belongs to the lead: whatever becomes of its backs, every token is the one it would have been."""

import signal
from contextlib import ExitStack

import pytest

from tests.real.asking import ask, backs, stream
from tests.real.processes import back_of, frozen_engine, kill

pytestmark = pytest.mark.real

SAMPLINGS = {"greedy": {"temperature": 0}, "sampled": {"temperature": 0.8, "seed": 7}}


@pytest.fixture(scope="module", params=SAMPLINGS)
def plain(request, served):
    """(sampling parameters, what the lead says with them when it is alone)."""
    _, url = served
    assert backs(url) == []
    sampling = SAMPLINGS[request.param]
    told = ask(url, **sampling)
    assert told.n_drafted == 0
    return sampling, told.text


def accepted_from(name):
    return lambda told: name in told.sources


def test_the_lead_alone_repeats_itself(served, plain):
    sampling, text = plain
    assert ask(served[1], **sampling).text == text


def test_another_seed_gives_another_text(served):
    assert ask(served[1], temperature=0.8, seed=7).text != ask(served[1], temperature=0.8, seed=8).text


def test_a_back_is_accepted_and_changes_nothing(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "helper"):
        told = ask(url, **sampling)
    assert told.text == text
    assert told.n_accepted > 0


def test_two_backs_are_accepted_and_change_nothing(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "one"), back_of(lead, url, "two"), stream(url, **sampling) as answer:
        told = answer.rest()
        heard = {back["name"] for back in backs(url) if back["n_drafts"]}
    assert told.text == text
    assert told.sources
    assert heard == {"one", "two"}


def test_a_back_killed_in_mid_answer_changes_nothing(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "victim") as back, stream(url, **sampling) as answer:
        answer.until(accepted_from("victim"))
        with frozen_engine(lead):
            kill(back)
            lead.wait_for("back victim .*left")
        told = answer.rest()
    assert told.text == text
    assert told.n_accepted > 0


def test_a_back_stopped_in_mid_answer_changes_nothing(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "sleeper") as back, stream(url, **sampling) as answer:
        answer.until(accepted_from("sleeper"))
        with frozen_engine(lead):
            back.signal(signal.SIGSTOP)
        told = answer.rest()
    assert told.text == text
    assert told.n_accepted > 0


def test_a_back_that_was_stopped_drafts_again_when_it_goes_on(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "sleeper") as back:
        back.signal(signal.SIGSTOP)
        assert ask(url, **sampling).n_accepted == 0
        back.signal(signal.SIGCONT)
        told = ask(url, **sampling)
    assert told.text == text
    assert told.n_accepted > 0


def test_a_back_that_joins_in_mid_answer_is_accepted_and_changes_nothing(served, plain):
    lead, url = served
    sampling, text = plain
    with ExitStack() as stack:
        answer = stack.enter_context(stream(url, **sampling)).until(lambda told: told.text)
        with frozen_engine(lead):
            stack.enter_context(back_of(lead, url, "latecomer"))
        told = answer.rest()
    assert told.text == text
    assert told.sources == {"latecomer"}


def test_a_back_killed_and_another_joining_in_mid_answer_change_nothing(served, plain):
    lead, url = served
    sampling, text = plain
    with ExitStack() as stack:
        first = stack.enter_context(back_of(lead, url, "first"))
        answer = stack.enter_context(stream(url, **sampling)).until(accepted_from("first"))
        with frozen_engine(lead):
            kill(first)
            stack.enter_context(back_of(lead, url, "second"))
        told = answer.until(accepted_from("second")).rest()
    assert told.text == text


def test_a_back_with_a_short_context_drafts_from_a_window(served, plain):
    lead, url = served
    sampling, text = plain
    with back_of(lead, url, "short", "--ctx-size", "256", "--parallel", "4") as back:
        told = ask(url, **sampling)
        assert back.process.poll() is None
    assert told.text == text
    assert told.n_accepted > 0
