"""`lead --back`: a back of the lead's own, which comes, drafts, comes back, and goes with the lead."""

import os
import signal

import pytest

from bench.processes import Program
from shared.models.builtin import builtin_draft
from tests.real.asking import ask, backs, stream
from tests.real.processes import LEAD, free_port, kill, local_back_of, start_lead_at, wait_for_end

pytestmark = pytest.mark.real

JOINED = r"back local .*joined"


@pytest.fixture
def lead_with_back(own_lead):
    """(lead, url), once its own back has joined."""

    def start(*arguments):
        lead, url = own_lead("--back", "builtin", *arguments)
        lead.wait_for(JOINED)
        return lead, url

    return start


def test_a_leads_own_back_is_accepted_and_changes_nothing(served, lead_with_back):
    _, url = lead_with_back()
    told = ask(url)
    assert told.text == ask(served[1]).text
    assert told.n_accepted > 0
    assert [back["name"] for back in backs(url)] == ["local"]


def test_its_log_is_the_leads(lead_with_back):
    lead, url = lead_with_back()
    lead.wait_for(rf"back INFO: drafting for ws{url.removeprefix('http')}/v1/speculation as local")


def test_a_killed_one_is_started_again(lead_with_back):
    lead, url = lead_with_back()
    since = lead.n_lines()
    os.kill(local_back_of(lead), signal.SIGKILL)
    lead.wait_for(r"the local back ended \(signal 9\): starting it again", since=since)
    lead.wait_for(JOINED, since=since)
    assert ask(url).n_accepted > 0


def test_an_orderly_end_of_the_lead_ends_it(lead_with_back):
    lead, _ = lead_with_back()
    back = local_back_of(lead)
    lead.signal(signal.SIGTERM)
    assert lead.process.wait(30) == 0
    assert wait_for_end(back, 0)


def test_it_drafts_for_the_last_answer_and_ends_without_a_complaint(lead_with_back):
    lead, url = lead_with_back("--drain-seconds", "60")
    with stream(url) as answer:
        answer.until(lambda told: told.text)
        lead.signal(signal.SIGTERM)
        told = answer.rest()
    assert lead.process.wait(30) == 0
    assert told.done
    assert told.n_accepted > 0
    assert "stopping: 1 answer has up to 60 s" in lead.log
    assert "no lead at" not in lead.log
    assert "Traceback" not in lead.log


def test_a_killed_lead_leaves_none_behind(lead_with_back):
    lead, _ = lead_with_back()
    back = local_back_of(lead)
    kill(lead)
    assert wait_for_end(back)


def test_one_that_cannot_draft_for_this_lead_is_given_up(own_lead, tmp_path):
    path = tmp_path / "stranger.gguf"
    path.write_bytes(builtin_draft().read_bytes().replace(b"speculative", b"speculatife"))
    lead, url = own_lead("--back", str(path))
    lead.wait_for("the local back will not be started again")
    assert "Start the back with a smaller model of the same family" in lead.log
    assert ask(url).text


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_lead_and_back_run_on_the_cores_they_were_given(lead_with_back):
    one, other = sorted(os.sched_getaffinity(0))[:2]
    lead, _ = lead_with_back("--cpus", str(one), "--back-cpus", str(other))
    assert os.sched_getaffinity(lead.process.pid) == {one}
    assert os.sched_getaffinity(local_back_of(lead)) == {other}


def test_a_lead_that_listens_everywhere_is_dialled_on_loopback(target):
    port = free_port()
    arguments = ("--model", str(target), "--host", "0.0.0.0", "--insecure", "--back", "builtin", *LEAD)
    with start_lead_at(port, *arguments) as lead:
        assert isinstance(lead, Program)
        lead.wait_for(rf"drafting for ws://127\.0\.0\.1:{port}/")
