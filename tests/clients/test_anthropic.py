"""The `anthropic` package, unchanged."""

import importlib

import pydantic
import pytest

from lead.chat_format.template import ChatTemplate
from tests.lead.apis.anthropic.test_model_routes import ADD
from tests.lead.http.routes.test_chat_tools import CALL, HERMES

ASK = {"model": "any", "max_tokens": 64, "messages": [{"role": "user", "content": "Hello"}]}


class Sum(pydantic.BaseModel):
    a: int


@pytest.fixture(scope="module")
def anthropic():
    """The package. Only the worker that runs these tests imports it: this takes a second."""
    return importlib.import_module("anthropic")


@pytest.fixture
async def client(url, anthropic):
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


async def test_a_message_is_answered(lead, client):
    lead.will_say("Hello there")
    message = await client.messages.create(**ASK, system="Be kind", extra_body={"temperature": 0.5})
    assert (message.content[0].text, message.stop_reason) == ("Hello there", "end_turn")
    assert message.usage.output_tokens > 0


async def test_a_message_is_streamed(lead, client):
    lead.will_say("Hello there")
    async with client.messages.stream(**ASK) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    assert text == final.content[0].text == "Hello there"


async def test_tools_are_called(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say("Well.\n" + CALL)
    async with client.messages.stream(**ASK, tools=[ADD], tool_choice={"type": "auto"}) as stream:
        final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert (final.content[1].input, final.stop_reason) == ({"a": 1}, "tool_use")


async def test_an_object_is_parsed(lead, client):
    lead.will_say('{"a": 1}')
    message = await client.messages.parse(**ASK, output_format=Sum)
    assert message.parsed_output == Sum(a=1)
    assert lead.engine.submitted[0].sampling.grammar


async def test_a_wrong_field_raises_bad_request(client, anthropic):
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        await client.messages.create(**ASK | {"max_tokens": 0})


async def test_an_engine_that_dies_raises_in_mid_stream(lead, client, anthropic):
    lead.will_say("one two three")
    lead.engine.dies_after = 2
    with pytest.raises(anthropic.APIStatusError, match="died"):
        async with client.messages.stream(**ASK) as stream:
            await stream.get_final_message()


async def test_an_unknown_path_raises_not_found(client, anthropic):
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.messages.batches.list()
    body = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
