"""A real lead serves several clients at once, and reuses text that it has read."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.parts.processes import start_lead
from tests.real.client import ask, post, stream
from tests.real.processes import back_of

pytestmark = pytest.mark.real

PROMPTS = (
    "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella.",
    "What is speculative decoding?",
    "Write a short story about a baker who finds a mysterious letter.",
    "Tell me a story about a turtle and a lighthouse.",
)
SAMPLING = {"temperature": 0.8, "seed": 3}


def test_four_requests_with_a_back_get_the_texts_that_each_gets_alone(served):
    lead, url = served

    def say(prompt):
        with stream(url, prompt=prompt, **SAMPLING) as answer:
            return answer.rest().text

    one_by_one = [ask(url, prompt=prompt, **SAMPLING).text for prompt in PROMPTS]
    with back_of(lead, url, "helper"), ThreadPoolExecutor(len(PROMPTS)) as threads:
        assert list(threads.map(say, PROMPTS)) == one_by_one


def test_more_conversations_than_slots_are_not_read_again(tiny_model):
    model = str(tiny_model("llama"))
    with_two_slots = ("--threads", "1", "--no-calibrate", "--parallel", "2", "--ctx-size", "1024")
    lead, url = start_lead("--model", model, *with_two_slots)
    with lead:
        talks = [[{"role": "user", "content": f"{n} " * 60}] for n in range(5)]
        for turn in range(2):
            for talk in talks:
                body = post(url, {"messages": talk, "max_tokens": 8}).json()
                usage = body["usage"]
                assert turn == 0 or usage["prompt_tokens_details"]["cached_tokens"] > 60
                talk += [body["choices"][0]["message"], {"role": "user", "content": "Go on."}]
