"""A public chat model with 4-bit weights, in real programs."""

import json
from pathlib import Path

import pytest

from lab.parts.processes import start_lead
from tests.real.client import planner, post
from tests.real.processes import back_of
from tests.real.test_exact import PROMPTS, check_shifts_beside_drafts, say, say_all_at_once

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
    """(lead, url) with usual options, and fewer slots."""
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


@pytest.fixture(scope="module")
def exact(smollm2):
    """(lead, url, its answers to the prompts while nothing drafts)."""
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
        back.wait_for("translating: .* have different tokenizers")
        assert say_all_at_once(url, **SHORT) == alone
        assert planner(url)["sources"]["foreign"]["n_right"] > 0


def test_nor_do_drafts_of_the_engine_and_shifts_of_the_context(smollm2):
    check_shifts_beside_drafts(smollm2, "draft_model", "--draft-model", str(smollm2))
