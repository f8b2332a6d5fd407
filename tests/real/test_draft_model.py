"""A draft model in the engine: the text is that of the target alone, whatever is asked for."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import gguf
import pytest

from bench.processes import start_lead
from shared.models.builtin import builtin_draft
from tests.real.client import ask, get, planner, stream
from tests.real.processes import LEAD, engine_of
from tests.real.test_engine_death import SCHEMA
from tests.tiny_eagle import write_tiny_eagle

pytestmark = pytest.mark.real

SAMPLINGS = {
    "greedy": {"temperature": 0},
    "sampled with penalties": {
        "temperature": 0.8,
        "seed": 7,
        "repeat_penalty": 1.3,
        "logit_bias": {"300": 2},
    },
    "in a schema": SCHEMA,
}


@pytest.fixture(scope="module")
def drafting(target):
    """A lead with the shipped draft model in its engine."""
    policy = ("--policy", "fixed", "--depth", "3")  # whether it pays with so small a target
    lead, url = start_lead("--model", str(target), *LEAD, *policy, "--draft-model", str(builtin_draft()))
    with lead:
        yield lead, url


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_it_is_accepted_and_changes_nothing(served, drafting, sampling):
    with stream(drafting[1], **SAMPLINGS[sampling]) as answer:
        reply = answer.rest()
    assert reply.text == ask(served[1], **SAMPLINGS[sampling]).text
    assert reply.sources == {"draft_model"}
    assert reply.n_accepted > 0


def test_several_answers_at_once_stay_as_they_are(served, drafting):
    requests = [{"temperature": 0.7, "seed": seed} for seed in range(6)]
    plain = [ask(served[1], **request).text for request in requests]
    with ThreadPoolExecutor(len(requests)) as pool:
        replies = list(pool.map(lambda request: ask(drafting[1], **request), requests))
    assert [reply.text for reply in replies] == plain
    assert all(reply.n_accepted for reply in replies)


def test_after_the_engines_death_drafting_goes_on(served, drafting):
    lead, url = drafting
    with stream(url, temperature=0.8) as answer:
        answer.until(lambda reply: "draft_model" in reply.sources)
        since = lead.n_lines()
        os.kill(engine_of(lead), signal.SIGKILL)
        reply = answer.rest()
    lead.wait_for("draft model: .* memory: ", since=since)
    assert reply.text == ask(served[1], temperature=0.8).text


def test_an_eagle_drafter_changes_no_text(served, own_lead, target, tmp_path):
    width = gguf.GGUFReader(target).fields["llama.embedding_length"].contents()
    eagle = write_tiny_eagle(tmp_path / "eagle.gguf", target_width=width, own=True)
    policy = ("--policy", "fixed", "--depth", "2")
    lead, url = own_lead("--draft-model", str(eagle), *policy)
    lead.wait_for("drafting with an EAGLE-3 drafter, .* memory: .* for weights")
    for sampling in SAMPLINGS.values():
        assert ask(url, **sampling).text == ask(served[1], **sampling).text
    assert planner(url)["sources"]["draft_model"]["n_scored"] > 0
    assert planner(url)["draft_model"]["n_tokens"] > 0
    assert get(url, "/props")["draft_model"]
