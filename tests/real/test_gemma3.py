"""A public base model with sliding windows, 262,144 tokens and 4-bit weights, in real programs."""

import pytest

from lab.parts.processes import start_lead
from tests.real.client import connect, planner
from tests.real.processes import back_of

pytestmark = [pytest.mark.real, pytest.mark.models]

STORY = "Once upon a time there was a lighthouse keeper who"
LONG = "The lighthouse stood on a rock, and the keeper counted the ships that passed it. " * 45
"""A text longer than a window."""


@pytest.fixture(scope="module")
def exact(gemma3, smollm2):
    """(lead, url, both texts' continuations without drafts). The draft model in its engine translates."""
    drafting = ("--draft-model", str(smollm2), "--policy", "sync", "--depth", "2")
    options = ("--threads", "1", "--no-calibrate", "--parallel", "2", "--ctx-size", "4096")
    lead, url = start_lead("--model", str(gemma3), *options, "--exact", *drafting)
    with lead:
        plain = {"cache_prompt": False, "speculative.n_max": 0}
        yield lead, url, [go_on(url, text, **plain) for text in (STORY, LONG)]


def go_on(url, text, **fields):
    """The text, and the probabilities of its tokens."""
    request = {"prompt": text, "max_tokens": 24, "temperature": 0.8, "seed": 1, "logprobs": 1} | fields
    with connect(url) as client:
        (choice,) = client.post("/v1/completions", json=request).json()["choices"]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def test_drafts_of_its_engine_and_windows_change_not_a_bit(exact):
    _, url, alone = exact
    assert [go_on(url, text) for text in (STORY, LONG)] == alone
    assert planner(url)["draft_model"]["n_tokens"] > 0
    assert [go_on(url, text) for text in (STORY, LONG)] == alone  # prompts are reused


def test_a_back_with_another_vocabulary_changes_not_a_bit(exact, smollm2):
    lead, url, alone = exact
    with back_of(lead, url, "foreign", "--model", str(smollm2)) as back:
        back.wait_for("translating: .* have different tokenizers")
        assert [go_on(url, text) for text in (STORY, LONG)] == alone
        assert planner(url)["sources"]["foreign"]["n_right"] > 0
