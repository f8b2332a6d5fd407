"""With --exact not a bit of a token's probability depends on other events."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.parts.processes import start_lead
from shared.model_files.builtin import builtin_target
from tests.real.client import chat, get, planner, post
from tests.real.processes import LEAD, back_of, engine_of

pytestmark = pytest.mark.real

PROMPTS = [
    "Tell me about honey bees.",
    "Explain the water cycle.",
    "Write a story about a fox.",
    "What is git?",
]


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """(lead, url, its answers to the prompts while it does nothing else)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))  # nothing is known already
        lead, url = start_lead("--model", str(builtin_target()), *LEAD, "--exact", "--max-restarts", "1000")
    with lead:
        yield lead, url, [say(url, prompt, cache_prompt=False) for prompt in PROMPTS]


def say(url, prompt, **fields):
    """The text, and the probabilities of its tokens."""
    fields = {"temperature": 0.8, "max_tokens": 60, "logprobs": True, **fields}
    (choice,) = post(url, chat(prompt, **fields)).json()["choices"]
    return choice["message"]["content"], [token["logprob"] for token in choice["logprobs"]["content"]]


def say_all_at_once(url, prompts=PROMPTS, **fields):
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: say(url, prompt, **fields), prompts))


def say_all_while_the_engine_dies(lead, url, **fields):
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(say_all_at_once, url, **fields)
        while not answers.done() and not get(url, "/slots")[0]["is_processing"]:
            time.sleep(0.01)
        os.kill(engine_of(lead), signal.SIGKILL)
        return answers.result()


def test_it_is_promised(exact):
    assert get(exact[1], "/props")["exact"] is True


def test_not_on_a_back_nor_on_other_clients(exact):
    lead, url, alone = exact
    with back_of(lead, url, "helper"):
        assert say_all_at_once(url) == alone
        assert say_all_at_once(url) == alone  # prompts are reused


def test_not_on_the_death_of_the_engine(exact):
    lead, url, alone = exact
    assert say_all_while_the_engine_dies(lead, url) == alone


def test_nor_on_drafts_of_the_engine_nor_on_shifts_of_the_context(tiny_with_heads, tmp_path, monkeypatch):
    """Here the model's heads draft. Another test has a public draft model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check_shifts_beside_drafts(tiny_with_heads("glm4moe"), "mtp", "--mtp", "on")


def check_shifts_beside_drafts(model, source, *drafter):
    arguments = (*drafter, "--exact", "--policy", "fixed", "--depth", "3", "--context-shift")
    lead, url = start_lead("--model", str(model), *LEAD, *arguments, "--parallel", "2", "-c", "352")
    long = {"max_tokens": 200}  # with the prompt more than the 192 that a sequence has room for
    prompts = PROMPTS[:2]
    with lead:
        plain = {"cache_prompt": False, "speculative.n_max": 0}
        alone = [say(url, prompt, **plain, **long) for prompt in prompts]
        assert say_all_at_once(url, prompts, **long) == alone
        assert planner(url)[source]["n_tokens"] > 0
        assert say_all_while_the_engine_dies(lead, url, prompts=prompts, **long) == alone
