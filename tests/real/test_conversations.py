"""Conversations over HTTP: what is cached of others, and of earlier turns, changes no probability."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.processes import start_lead
from tests.real.client import post

pytestmark = pytest.mark.real

BOUND = 0.01
"""Of a log-probability, with random weights in f32 and a KV cache in f16."""


def conversation(rng):
    """The messages of one or two turns; some begin alike."""
    system = rng.choice(["You count.", "You are a careful assistant who answers in few words. " * 4])
    words = " ".join(f"word{rng.randrange(100)}" for _ in range(rng.randint(3, 60)))
    messages = [{"role": "system", "content": system}, {"role": "user", "content": words}]
    if rng.random() < 0.5:
        answer = " ".join(f"item{rng.randrange(100)}" for _ in range(rng.randint(1, 40)))
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Go on."}]
    return messages


def log_probabilities(url, messages, **fields):
    """(token, log-probability) for each token of the answer."""
    request = {"messages": messages, "max_tokens": 12, "temperature": 0, "logprobs": True, "ignore_eos": True}
    response = post(url, request | fields)
    assert response.status_code == 200, response.text
    listed = response.json()["choices"][0]["logprobs"]["content"]
    return [(tuple(each["bytes"] or ()), each["logprob"]) for each in listed]


def difference(one, other):
    """The largest difference of a log-probability, as far as the texts agree."""
    largest = 0.0
    for (token, value), (expected, expected_value) in zip(one, other, strict=True):
        largest = max(largest, abs(value - expected_value))
        if token != expected:
            break
    return largest


def differences(url, n_conversations, seed=1):
    """For each conversation: asked twice among others, against once with nothing cached."""
    rng = random.Random(seed)
    conversations = [conversation(rng) for _ in range(n_conversations)]
    order = [*range(n_conversations)] * 2
    rng.shuffle(order)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: log_probabilities(url, conversations[i]), order))
    largest = [0.0] * n_conversations
    fresh = [log_probabilities(url, messages, cache_prompt=False) for messages in conversations]
    for i, answer in zip(order, answers, strict=True):
        largest[i] = max(largest[i], difference(answer, fresh[i]))
    return largest


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


@pytest.mark.parametrize("architecture", ["llama", "gpt-oss", "lfm2"])
def test_probabilities_do_not_depend_on_the_cache(tiny_model, architecture):
    lead, url = start_lead("--model", str(tiny_model(architecture)), "--threads", "1", "--no-calibrate")
    with lead:
        assert max(differences(url, 8)) < BOUND
