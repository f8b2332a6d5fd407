"""`lead --back`: a back that the lead starts, supervises and ends."""

import os
import signal

import pytest

from lab.parts.processes import start_lead
from tests.real.client import TIMEOUT_S, ask, ask_until_accepted, backs, stream
from tests.real.processes import LEAD, local_back_of, wait_for_end

pytestmark = pytest.mark.real

JOINED = r"back local .*joined"


@pytest.fixture(scope="module")
def shared_lead(target):
    """(lead, url) with its own back, for tests that leave it with one."""
    lead, url = start_lead("--model", str(target), *LEAD, "--back", "builtin")
    with lead:
        lead.wait_for(JOINED)
        yield lead, url


@pytest.fixture
def lead_with_back(own_lead):
    """Starts leads that belong to one test: (lead, url), after its own back has joined."""

    def start(*arguments):
        lead, url = own_lead("--back", "builtin", *arguments)
        lead.wait_for(JOINED)
        return lead, url

    return start


def test_its_drafts_are_accepted_and_change_no_text(served, shared_lead):
    lead, url = shared_lead
    lead.wait_for(rf"back INFO: drafting for ws{url.removeprefix('http')}/v1/speculation as local")
    assert ask_until_accepted(url).text == ask(served[1]).text
    assert [back["name"] for back in backs(url)] == ["local"]


def test_after_sigkill_it_is_started_again(shared_lead):
    lead, url = shared_lead
    since = lead.n_lines()
    os.kill(local_back_of(lead), signal.SIGKILL)
    lead.wait_for(r"the local back .*ended with signal SIGKILL", since=since)
    lead.wait_for(JOINED, since=since)
    ask_until_accepted(url)


def test_sigterm_lets_an_answer_finish_with_its_drafts_and_exits_with_0(lead_with_back):
    lead, url = lead_with_back(
        "--drain-seconds", "600", "--policy", "sync", "--depth", "3"
    )  # waits for drafts
    back = local_back_of(lead)
    with stream(url) as answer:
        answer.until(lambda reply: reply.text)
        lead.signal(signal.SIGTERM)
        reply = answer.rest()
    assert lead.process.wait(TIMEOUT_S) == 0
    assert wait_for_end(back, 0)
    assert (reply.error, reply.finish_reason, reply.done) == (None, "length", True)
    assert reply.n_accepted > 0
    assert "stopping: 1 answer has up to 600 s" in lead.log
    assert "no lead at" not in lead.log
    assert "Traceback" not in lead.log
