"""A target whose layers are on two workers (`lead rpc-worker`): its text, and workers that fail."""

import signal

import pytest

from lab.parts.processes import Program, ProgramError, free_port, start_lead
from shared.rpc import rpc_backend
from tests.real.client import ENDLESS, ask, stream
from tests.real.processes import LEAD, READY, kill

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not rpc_backend.is_available(), reason=rpc_backend.HOW_TO_BUILD),
]

N_TOKENS = 300
ARGUMENTS = (*LEAD, "--engine-timeout", "8", "--max-restarts", "20")


class Workers:
    """Two workers, at ports that stay the same."""

    def __init__(self):
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self._running = {}

    def start(self, n):
        port = self.addresses[n].rpartition(":")[2]
        self._running[n] = Program("lead", "rpc-worker", "--port", port, "--threads", "1")
        self._running[n].wait_for("computing on CPU")

    def __getitem__(self, n):
        return self._running[n]

    def stop(self):
        for worker in self._running.values():
            worker.stop()


@pytest.fixture(scope="module")
def workers():
    """Running workers. A test that ends a worker starts it again."""
    two = Workers()
    two.start(0)
    two.start(1)
    yield two
    two.stop()


def start_split(target, workers, *arguments):
    at = ("--rpc", ",".join(workers.addresses))
    return start_lead("--model", str(target), *ARGUMENTS, *at, *arguments)


@pytest.fixture
def split(target, workers):
    """(lead, url) of a lead whose target is on the workers. They serve no other lead meanwhile."""
    lead, url = start_split(target, workers, "--log-level", "debug")
    with lead:
        yield lead, url


@pytest.fixture(scope="module")
def whole(served):
    _, url = served
    return ask(url, max_tokens=N_TOKENS).text


def test_a_target_over_two_workers_writes_the_same_text(split, workers, whole):
    lead, url = split
    assert ask(url, max_tokens=N_TOKENS).text == whole
    for n, address in enumerate(workers.addresses):
        assert f"RPC{n} ({address})" in lead.log
        assert f"assigned to device RPC{n}," in lead.log


def test_an_answer_goes_on_when_a_killed_worker_is_back(split, workers, whole):
    lead, url = split
    with stream(url, max_tokens=N_TOKENS) as answer:
        answer.until(lambda reply: reply.text)
        kill(workers[1])
        lead.wait_for("cannot be reached.*. Waiting up to")
        workers.start(1)
        reply = answer.rest()
        assert (reply.text, reply.done, reply.error) == (whole, True, None)


def test_an_answer_goes_on_when_a_stopped_worker_goes_on(split, workers, whole):
    lead, url = split
    since = lead.n_lines()
    with stream(url, max_tokens=N_TOKENS) as answer:
        answer.until(lambda reply: reply.text)
        workers[0].signal(signal.SIGSTOP)
        lead.wait_for("made no progress", since=since)
        lead.wait_for("does not answer.*. Waiting up to", since=since)
        workers[0].signal(signal.SIGCONT)
        assert answer.rest().text == whole


def test_an_answer_whose_worker_never_returns_ends_with_an_error_and_the_lead_goes_on(target, workers, whole):
    lead, url = start_split(target, workers, "--rpc-timeout", "1")
    with lead:
        with stream(url, max_tokens=ENDLESS) as answer:
            answer.until(lambda reply: reply.text)
            kill(workers[1])
            assert "cannot be reached" in answer.rest().error["message"]
        since = lead.n_lines()
        workers.start(1)
        lead.wait_for(READY, since=since)
        assert ask(url, max_tokens=N_TOKENS).text == whole


def test_a_lead_may_be_started_before_its_workers(target, whole):
    late = Workers()
    lead = Program(
        "lead", "--port", "0", "--model", str(target), *ARGUMENTS, "--rpc", ",".join(late.addresses)
    )
    with lead:
        lead.wait_for("cannot be reached.*. Waiting up to")
        late.start(0)
        late.start(1)
        url = lead.wait_for(r"listening on (http://\S+),").group(1)
        lead.wait_for(READY)
        assert ask(url, max_tokens=N_TOKENS).text == whole
    late.stop()


def test_what_is_no_worker_is_refused_at_the_start(served, target):
    _, url = served
    foreign = url.removeprefix("http://")
    with pytest.raises(ProgramError, match="is not an RPC worker"):
        start_lead("--model", str(target), "--rpc", foreign)


def test_one_worker_under_two_names_is_noticed(target, workers):
    port = workers.addresses[0].rpartition(":")[2]
    twice = f"127.0.0.1:{port},localhost:{port}"
    with pytest.raises(ProgramError, match=f"localhost:{port} does not answer: .*named twice"):
        start_lead("--model", str(target), "--rpc", twice, "--rpc-timeout", "0.1")
