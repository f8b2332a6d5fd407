"""A real lead serves several clients at once, reuses its cache, and cancels answers whose client has gone."""

import asyncio
import json
from contextlib import ExitStack

import httpx
import pytest

from bench.processes import start_lead
from tests.real.client import ENDLESS, TIMEOUT_S, ask, chat, post, stream
from tests.real.processes import back_of

pytestmark = pytest.mark.real

PROMPTS = (
    "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella.",
    "What is speculative decoding?",
    "Write a short story about a baker who finds a mysterious letter.",
    "Tell me a story about a turtle and a lighthouse.",
)
SAMPLING = {"temperature": 0.8, "seed": 3}


async def ask_at_once(url):
    """The texts of streamed answers to all prompts."""

    async def one(client, prompt):
        body, text = chat(prompt, **SAMPLING, stream=True), ""
        async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                    text += choice["delta"].get("content") or ""
        return text

    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
        return await asyncio.gather(*(one(client, prompt) for prompt in PROMPTS))


@pytest.fixture(scope="module")
def one_by_one(served):
    return [ask(served[1], prompt=prompt, **SAMPLING).text for prompt in PROMPTS]


def test_four_requests_are_served_at_the_same_time(served):
    url = served[1]
    with ExitStack() as stack:
        answers = [stack.enter_context(stream(url, prompt=prompt, max_tokens=ENDLESS)) for prompt in PROMPTS]
        for answer in answers:
            answer.until(lambda reply: reply.text)
        slots = httpx.get(f"{url}/slots", trust_env=False, timeout=TIMEOUT_S).json()
    assert [slot["is_processing"] for slot in slots] == [True] * len(PROMPTS)


def test_four_requests_with_a_back_get_the_texts_that_each_gets_alone(served, one_by_one):
    lead, url = served
    with back_of(lead, url, "helper"):
        assert asyncio.run(ask_at_once(url)) == one_by_one


def test_a_second_turn_does_not_process_the_first_again(served):
    question = {"role": "user", "content": "Write a short story about a lantern."}
    first = ask(served[1], messages=[question])
    turns = [question, {"role": "assistant", "content": first.text}, {"role": "user", "content": "Go on."}]
    assert ask(served[1], messages=turns).n_cached >= first.n_prompt


RULES = (
    "You are a careful helper. Always answer in whole sentences, stay friendly, and never mention rain. " * 4
)


def test_a_prompt_of_claude_code_is_in_the_cache_although_its_billing_header_changes(served):
    def usage(checksum):
        header = f"x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={checksum};"
        system = [{"type": "text", "text": header}, {"type": "text", "text": RULES}]
        body = {"system": system, "messages": [{"role": "user", "content": PROMPTS[1]}], "max_tokens": 4}
        return httpx.post(f"{served[1]}/v1/messages", json=body, trust_env=False, timeout=TIMEOUT_S).json()[
            "usage"
        ]

    usage("fa690")
    again = usage("0aaa9")
    n_prompt = again["input_tokens"] + again["cache_read_input_tokens"]
    assert again["cache_read_input_tokens"] >= 0.95 * n_prompt


def test_several_answers_to_one_prompt_process_it_once(served):
    body = chat(f"{RULES} {PROMPTS[1]}", n=3, max_tokens=8, **SAMPLING)
    answer = httpx.post(
        f"{served[1]}/v1/chat/completions", json=body, trust_env=False, timeout=TIMEOUT_S
    ).json()
    usage = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 2 * (usage["prompt_tokens"] - 1) // 3


def test_a_client_that_hangs_up_frees_its_slot(own_lead):
    lead, url = own_lead("--parallel", "1")
    with stream(url, max_tokens=ENDLESS) as answer:
        answer.until(lambda reply: reply.text)
    assert int(lead.wait_for(r"generated (\d+),").group(1)) < ENDLESS
    assert ask(url, max_tokens=8).n_generated == 8


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
