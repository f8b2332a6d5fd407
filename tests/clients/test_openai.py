"""The current major version of the `openai` package, unchanged."""

import importlib
import json

import pytest

from lead.chat_format.template import ChatTemplate
from tests.lead.http.routes.test_chat_tools import ADD, CALL, HERMES

ASK = {"model": "any", "messages": [{"role": "user", "content": "Hello"}]}
SCHEMA = ADD["function"]["parameters"]


@pytest.fixture(scope="module")
def openai():
    """The package. Only the worker that runs these tests imports it: this takes a second."""
    return importlib.import_module("openai")


@pytest.fixture
async def client(url, openai):
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_a_chat_is_streamed(lead, client):
    lead.will_say("Hello there")
    stream = await client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert (text, chunks[-1].usage.completion_tokens > 0) == ("Hello there", True)


async def test_the_stream_helper_puts_calls_together(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say(CALL)
    async with client.chat.completions.stream(**ASK, tools=[ADD]) as stream:
        final = await stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
    assert final.choices[0].finish_reason == "tool_calls"


async def test_tools_are_called(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say(CALL)
    answer = await client.chat.completions.create(**ASK, tools=[ADD], tool_choice="auto")
    assert answer.choices[0].message.tool_calls[0].function.name == "add"


async def test_texts_are_completed(lead, client):
    lead.will_say("two")
    answer = await client.completions.create(model="any", prompt="one")
    assert answer.choices[0].text == "two"


async def test_a_wrong_field_raises_bad_request(client, openai):
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        await client.chat.completions.create(**ASK, temperature=-1)
    assert caught.value.param == "temperature"


async def test_what_the_lead_has_not_is_asked_for_once(client, openai):
    statuses = []

    async def note(response):
        statuses.append(response.status_code)

    patient = client.with_options(max_retries=3)
    patient._client.event_hooks = {"response": [note]}
    with pytest.raises(openai.InternalServerError, match="does not support embeddings"):
        await patient.embeddings.create(model="any", input="one")
    assert statuses == [501]


async def test_an_engine_that_dies_raises_in_mid_stream(lead, client, openai):
    lead.will_say("one two three")
    lead.engine.dies_after = 2
    stream = await client.chat.completions.create(**ASK, stream=True)
    with pytest.raises(openai.APIError, match="died"):
        async for _ in stream:
            pass


async def test_a_response_is_streamed(lead, client):
    lead.will_say("Hello there")
    async with client.responses.stream(model="any", input="Hello") as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert "".join(deltas) == final.output_text == "Hello there"


async def test_a_response_calls_tools(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say(CALL)
    tool = {"type": "function", "name": "add", "parameters": SCHEMA}
    async with client.responses.stream(model="any", input="Hello", tools=[tool]) as stream:
        final = await stream.get_final_response()
    assert (final.output[0].name, json.loads(final.output[0].arguments)) == ("add", {"a": 1})


async def test_a_response_that_fails_says_so_in_its_stream(lead, client):
    lead.will_say("one two three")
    lead.engine.dies_after = 2
    stream = await client.responses.create(model="any", input="Hello", stream=True)
    *_, error, failed = [event async for event in stream]
    assert (error.type, error.message) == ("error", "the engine has died")
    assert (failed.response.status, failed.response.error.code) == ("failed", "server_error")
    assert failed.sequence_number == error.sequence_number + 1


async def test_models_are_listed_and_retrieved(client, openai):
    (model,) = (await client.models.list()).data
    assert await client.models.retrieve(model.id) == model
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        await client.models.retrieve("another")
