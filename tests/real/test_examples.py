"""The examples of docs/protocol.md with a real lead."""

import shutil
import subprocess
import sys

import pytest

from docs.generate.pages import BY_HAND, TINY_BACK
from lab.parts.processes import Program, start_lead
from shared.convert.grow import Shape, grow
from shared.model_files.builtin import builtin_target
from tests.real.client import ask, ask_until_accepted, backs
from tests.real.processes import LEAD

pytestmark = pytest.mark.real

MAX_RUNS = 60


@pytest.fixture(scope="module")
def lead(tmp_path_factory):
    """(lead, url), with no backs except the examples.

    Its steps are slow: a back that answers only after many steps is not asked for more drafts.
    """
    path = tmp_path_factory.mktemp("models") / "slow.gguf"
    grow(builtin_target(), path, Shape(width=480, n_layers=20, n_heads=14, n_feed_forward=1344), "f32")
    lead, url = start_lead("--model", str(path), *LEAD)
    with lead:
        yield lead, url


@pytest.fixture
def tiny_back(lead):
    """The Python example, connected as a back."""
    with Program("tiny", lead[1], command=[sys.executable, str(TINY_BACK)]):
        lead[0].wait_for(r"back tiny .*joined")
        yield


@pytest.mark.usefixtures("tiny_back")
def test_the_tiny_back_drafts_a_text_it_has_seen_before_and_the_lead_accepts(lead):
    url = lead[1]
    first = ask(url)
    assert ask_until_accepted(url).text == first.text


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="it needs curl and jq")
def test_a_draft_that_is_posted_with_curl_is_accepted(lead):
    """On a busy machine the text may be complete before its draft comes."""
    for _ in range(MAX_RUNS):
        subprocess.run([BY_HAND, lead[1]], check=True, capture_output=True)
        if any(back["n_accepted_tokens"] for back in backs(lead[1])):
            return
    raise AssertionError(f"no drafted token was accepted in {MAX_RUNS} runs")
