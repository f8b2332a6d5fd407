"""A public model that people chat with, 4 bits a weight, in real programs."""

import json
from pathlib import Path

import pytest

from lab.parts.processes import start_lead
from tests.real.client import planner, post
from tests.real.processes import back_of, run_to_end
from tests.real.test_exact import (
    PROMPTS,
    check_shifts_beside_drafts,
    say,
    say_all_at_once,
    say_all_while_the_engine_dies,
)

pytestmark = [pytest.mark.real, pytest.mark.models]

DRAFT = (
    Path(__file__).parents[2] / "models" / "smollm2" / "wheel" / "llama_duo_smollm2" / "smollm2-draft.gguf"
)
QUESTION = "What is the capital city of France? Answer in a full sentence."
LEAD = ("--threads", "1", "--no-calibrate", "--max-restarts", "1000")
SHORT = {"max_tokens": 32}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 30}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "country": {"enum": ["France", "Spain"]},
        "inhabitants": {"type": "integer", "minimum": 0},
    },
    "required": ["city", "country", "inhabitants"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def usual(smollm2):
    """(lead, url) with the options that most people leave as they are, and fewer slots."""
    lead, url = start_lead("--model", str(smollm2), *LEAD, "--parallel", "2", "--ctx-size", "4096")
    with lead:
        yield lead, url


def message(url, prompt, **fields):
    request = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 100}
    (choice,) = post(url, request | fields).json()["choices"]
    return choice["message"]


def test_questions_are_answered(usual):
    assert "Paris" in message(usual[1], QUESTION, max_tokens=40)["content"]


def test_an_answer_has_the_form_of_its_schema(usual):
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
    said = message(usual[1], "Describe Paris as JSON.", response_format=form)["content"]
    described = json.loads(said)
    assert described.keys() == CITY["properties"].keys()
    assert (described["city"], described["country"]) == ("Paris", "France")
    assert isinstance(described["inhabitants"], int)


def test_tools_are_called(usual):
    fields = {"tools": [WEATHER], "tool_choice": "required"}
    (call,) = message(usual[1], "What is the weather in Paris?", **fields)["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert "Paris" in json.loads(call["function"]["arguments"])["city"]


def test_more_conversations_than_slots_go_on_without_being_read_again(usual):
    talks = [[{"role": "user", "content": f"{prompt} " + "Tell me more. " * 20}] for prompt in PROMPTS]
    n_read = {}
    for turn in range(3):
        for number, talk in enumerate(talks):
            body = post(usual[1], {"messages": talk, "max_tokens": 20, "temperature": 0}).json()
            usage = body["usage"]
            assert turn == 0 or usage["prompt_tokens_details"]["cached_tokens"] >= n_read[number]
            n_read[number] = usage["prompt_tokens"]
            talk += [body["choices"][0]["message"], {"role": "user", "content": "Go on."}]


def test_chat_prints_the_answer_alone(usual):
    fields = ("--temperature", "0", "--max-tokens", "40")
    said = run_to_end("chat", "--lead", usual[1], *fields, QUESTION).stdout
    assert said.strip() == message(usual[1], QUESTION, max_tokens=40)["content"]


def without_chance(route):
    route.continue_(post_data=json.dumps(json.loads(route.request.post_data) | {"temperature": 0}))


def test_the_page_shows_the_answer(usual, browser):
    with browser.new_context() as context:
        context.set_default_timeout(120_000)
        page = context.new_page()
        page.route("**/v1/chat/completions", without_chance)
        page.goto(usual[1])
        page.get_by_label("Your question").fill(QUESTION)
        page.keyboard.press("Enter")
        page.locator(".answer .figures").wait_for()
        assert "Paris" in page.locator(".said").text_content()


def test_doctor_says_that_a_back_may_join_and_that_none_has(usual, smollm2):
    options = ("--lead", usual[1], "--model", str(smollm2), "--threads", "1")
    said = run_to_end("back", "doctor", *options, status=1).stdout
    assert "the lead accepts this back" in said
    assert "is not connected, nor is any other" in said


@pytest.fixture(scope="module")
def exact(smollm2):
    """(lead, url, what it says to each prompt when nothing drafts)."""
    lead, url = start_lead(
        "--model", str(smollm2), *LEAD, "--exact", "--policy", "sync", "--depth", "3", "--ctx-size", "8192"
    )
    with lead:
        plain = {"cache_prompt": False, "speculative.n_max": 0, **SHORT}
        yield lead, url, [say(url, prompt, **plain) for prompt in PROMPTS]


def test_lookups_change_not_a_bit(exact):
    _, url, alone = exact
    assert say_all_at_once(url, **SHORT) == alone
    assert say_all_at_once(url, **SHORT) == alone  # drafted from what was said before
    assert planner(url)["n_accepted_tokens"] > 0


def test_its_own_back_changes_not_a_bit(exact, smollm2):
    lead, url, alone = exact
    with back_of(lead, url, "own", "--model", str(smollm2)):
        assert say_all_at_once(url, **SHORT) == alone
        assert planner(url)["sources"]["own"]["n_right"] > 0


def test_a_back_with_its_draft_model_changes_not_a_bit_and_is_often_right(exact):
    lead, url, alone = exact
    with back_of(lead, url, "small", "--model", str(DRAFT)):
        assert say_all_at_once(url, **SHORT) == alone
        assert say_all_at_once(url, **SHORT) == alone
        small = planner(url)["sources"]["small"]
    assert small["n_right"] > small["n_scored"] / 4  # sampled


def test_a_back_with_another_vocabulary_changes_not_a_bit(exact, gemma3):
    lead, url, alone = exact
    with back_of(lead, url, "foreign", "--model", str(gemma3)) as back:
        back.wait_for("translating: .* has another tokenizer")
        assert say_all_at_once(url, **SHORT) == alone
        assert planner(url)["sources"]["foreign"]["n_right"] > 0


def test_the_death_of_the_engine_changes_not_a_bit(exact):
    lead, url, alone = exact
    assert say_all_while_the_engine_dies(lead, url, **SHORT) == alone


def test_nor_do_drafts_of_the_engine_and_shifts_of_the_context(smollm2):
    check_shifts_beside_drafts(smollm2, "draft_model", "--draft-model", str(smollm2))
