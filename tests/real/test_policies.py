"""Every policy gives the same text over real processes, with n-grams and the client's prediction besides."""

import httpx
import pytest

from bench.processes import start_lead
from tests.real.client import TIMEOUT_S, ask, ask_until_accepted
from tests.real.processes import LEAD, back_of

pytestmark = pytest.mark.real

SAMPLING = {"temperature": 0.8, "seed": 11}
POLICIES = [("adaptive", 0), ("sync", 3), ("fixed", 5), ("off", 0), ("adaptive", 0)]


@pytest.fixture(scope="module")
def drafting(target):
    """A lead that drafts by itself, too."""
    lead, url = start_lead("--model", str(target), *LEAD, "--ngram")
    with lead:
        yield lead, url


@pytest.fixture(scope="module")
def plain(drafting):
    """What it says without any drafts."""
    choose(drafting[1], "off", 0)
    reply = ask(drafting[1], **SAMPLING)
    assert reply.n_drafted == 0
    return reply.text


def choose(url, policy, depth):
    httpx.put(
        f"{url}/v1/speculation", json={"policy": policy, "depth": depth}, timeout=TIMEOUT_S
    ).raise_for_status()


def test_a_change_of_policy_changes_no_text(drafting, plain):
    lead, url = drafting
    with back_of(lead, url, "helper"):
        for policy, depth in POLICIES:
            choose(url, policy, depth)
            if policy == "off":
                reply = ask(url, **SAMPLING)
                assert reply.n_accepted == 0
            else:
                reply = ask_until_accepted(url, **SAMPLING)
            assert reply.text == plain, policy


def test_a_prediction_is_accepted_and_changes_no_text(drafting, plain):
    _, url = drafting
    choose(url, "fixed", 5)  # how many tokens adaptive takes depends on how long steps take here and now
    reply = ask(url, **SAMPLING, prediction={"type": "content", "content": plain})
    assert reply.text == plain
    assert reply.n_accepted > 50
