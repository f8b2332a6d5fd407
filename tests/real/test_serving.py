"""A real lead serves several clients at once, and reuses what it has read."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.real.client import ENDLESS, ask, get, stream
from tests.real.processes import back_of

pytestmark = pytest.mark.real

PROMPTS = (
    "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella.",
    "What is speculative decoding?",
    "Write a short story about a baker who finds a mysterious letter.",
    "Tell me a story about a turtle and a lighthouse.",
)
SAMPLING = {"temperature": 0.8, "seed": 3}
RULES = (
    "You are a careful helper. Always answer in whole sentences, stay friendly, and never mention rain. " * 4
)


def test_four_requests_are_served_at_the_same_time(served):
    url = served[1]
    with ExitStack() as stack:
        answers = [stack.enter_context(stream(url, prompt=prompt, max_tokens=ENDLESS)) for prompt in PROMPTS]
        for answer in answers:
            answer.until(lambda reply: reply.text)
        slots = get(url, "/slots")
    assert [slot["is_processing"] for slot in slots] == [True] * len(PROMPTS)


def test_four_requests_with_a_back_get_the_texts_that_each_gets_alone(served):
    lead, url = served

    def say(prompt):
        with stream(url, prompt=prompt, **SAMPLING) as answer:
            return answer.rest().text

    one_by_one = [ask(url, prompt=prompt, **SAMPLING).text for prompt in PROMPTS]
    with back_of(lead, url, "helper"), ThreadPoolExecutor(len(PROMPTS)) as threads:
        assert list(threads.map(say, PROMPTS)) == one_by_one


def conversation(question):
    return [{"role": "system", "content": RULES}, {"role": "user", "content": question}]


def test_a_prompt_prefix_shared_by_two_chats_is_processed_once_and_gives_the_same_text(served):
    url = served[1]
    alone = ask(url, messages=conversation(PROMPTS[0]), id_slot=0, cache_prompt=False, **SAMPLING)
    ask(url, messages=conversation(PROMPTS[2]), id_slot=1, cache_prompt=False, max_tokens=4, **SAMPLING)
    ask(url, prompt=PROMPTS[3], id_slot=0, cache_prompt=False, max_tokens=4)
    copied = ask(url, messages=conversation(PROMPTS[0]), id_slot=2, **SAMPLING)
    assert (alone.n_cached, copied.n_cached > 60) == (0, True)
    assert copied.text == alone.text
