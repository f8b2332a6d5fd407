"""The `openai` package, unchanged, against a real lead."""

import openai
import pytest

from tests.real.client import MOST_ANSWERS
from tests.real.processes import back_of

pytestmark = pytest.mark.real

MESSAGES = [{"role": "user", "content": "What is speculative decoding?"}]


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=f"{served[1]}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_chat_is_answered(client):
    answer = client.chat.completions.create(
        model="any", messages=MESSAGES, max_completion_tokens=24, temperature=0, seed=5
    )
    (choice,) = answer.choices
    assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
    assert choice.message.content.strip()
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24
    assert answer.usage.completion_tokens_details.accepted_prediction_tokens == 0


def test_a_streamed_chat_says_what_the_whole_one_says(client):
    fields = {"model": "any", "messages": MESSAGES, "max_tokens": 24, "seed": 5}
    whole = client.chat.completions.create(**fields)
    chunks = list(
        client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_back_shows_in_the_usage(client, served):
    fields = {"model": "any", "messages": MESSAGES, "max_tokens": 64, "temperature": 0}
    with back_of(*served, "helper"):
        answers = (client.chat.completions.create(**fields) for _ in range(MOST_ANSWERS))
        assert any(
            answer.usage.completion_tokens_details.accepted_prediction_tokens > 0 for answer in answers
        )


def test_hanging_up_in_mid_answer_is_allowed(client):
    with client.chat.completions.create(model="any", messages=MESSAGES, stream=True) as answer:
        next(iter(answer))
    assert client.models.list().data
