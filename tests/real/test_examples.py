"""The examples of docs/protocol.md beside a real lead."""

import json
import shutil
import subprocess
import sys

import pytest

from bench.processes import Program
from docs.generate.pages import BY_HAND, TINY_BACK
from tests.real.asking import ask, stream

pytestmark = pytest.mark.real


@pytest.fixture
def tiny_back():
    """Starts the example in Python for a lead: (lead, url)."""
    backs = []

    def start(lead, url):
        backs.append(Program("tiny", url, command=[sys.executable, str(TINY_BACK)]))
        lead.wait_for(r"back tiny .*joined")

    yield start
    for back in backs:
        back.stop()


def test_what_the_tiny_back_has_seen_once_it_drafts_and_the_lead_accepts(own_lead, tiny_back):
    lead, url = own_lead()
    tiny_back(lead, url)
    first = ask(url)
    with stream(url) as second:
        told = second.rest()
    assert (told.text, "tiny" in told.sources) == (first.text, True)
    assert told.n_accepted > 0


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="it needs curl and jq")
def test_a_draft_that_is_posted_with_curl_is_accepted(own_lead):
    _, url = own_lead()
    done = subprocess.run([BY_HAND, url], check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout.splitlines()[-1])["n_accepted_tokens"] > 0
