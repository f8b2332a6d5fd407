"""The `openai` package, unchanged, against a real lead."""

import openai
import pytest

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


def test_a_second_turn_knows_the_first(client):
    first = client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=16, temperature=0)
    turns = [
        *MESSAGES,
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "Tell me more."},
    ]
    second = client.chat.completions.create(model="any", messages=turns, max_tokens=8)
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


def test_a_back_shows_in_the_usage(client, served):
    with back_of(*served, "helper"):
        answer = client.chat.completions.create(model="any", messages=MESSAGES, max_tokens=64, temperature=0)
    assert answer.usage.completion_tokens_details.accepted_prediction_tokens > 0


def test_texts_are_completed(client):
    answer = client.completions.create(
        model="any", prompt=["Once upon", "One day"], max_tokens=6, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage.completion_tokens == 12


def test_a_streamed_completion_says_what_the_whole_one_says(client):
    fields = {"model": "any", "prompt": "Once upon a time", "max_tokens": 12, "seed": 5}
    whole = client.completions.create(**fields)
    chunks = client.completions.create(**fields, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_the_model_is_listed(client):
    assert [model.id for model in client.models.list()] == ["spec-demo-target-grown"]


def test_a_wrong_field_raises_bad_request(client):
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        client.chat.completions.create(model="any", messages=MESSAGES, temperature=-1)
    assert (caught.value.type, caught.value.param) == ("invalid_request_error", "temperature")


def test_what_the_lead_does_not_do_raises_with_the_reason(client):
    with pytest.raises(openai.InternalServerError, match="does not support embeddings") as caught:
        client.embeddings.create(model="any", input="x")
    assert caught.value.status_code == 501


def test_an_unknown_path_raises_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.files.list()


def test_hanging_up_in_mid_answer_is_allowed(client):
    with client.chat.completions.create(model="any", messages=MESSAGES, stream=True) as answer:
        next(iter(answer))
    assert client.models.list().data
