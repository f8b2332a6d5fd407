import json
import re

import pytest

from lead.chat_format.template import ChatTemplate
from tests.lead.http.event_streams import events
from tests.lead.http.routes.test_chat_tools import CALL, HERMES, THINKS

pytestmark = pytest.mark.usefixtures("room")

URL = "/v1/messages"
ASK = {"model": "any", "max_tokens": 64, "messages": [{"role": "user", "content": "Hello"}]}
ADD = {"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}


async def stream(client, **fields):
    return events(await client.post(URL, json=ASK | {"stream": True} | fields))


async def test_an_answer_has_anthropics_shape(lead, client):
    lead.will_say("Hello there")
    body = (await client.post(URL, json=ASK)).json()
    assert (body["type"], body["role"], body["model"]) == ("message", "assistant", "toy")
    assert body["content"] == [{"type": "text", "text": "Hello there"}]
    assert (body["stop_reason"], body["stop_sequence"]) == ("end_turn", None)
    assert body["usage"]["cache_read_input_tokens"] == 2
    assert lead.engine.submitted[0].max_tokens == 64


async def test_a_stream_is_message_blocks_end(lead, client):
    lead.will_say("Hello there")
    told = await stream(client)
    kinds = [event["type"] for event in told]
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    deltas = [event["delta"]["text"] for event in told if event["type"] == "content_block_delta"]
    assert "".join(deltas) == "Hello there"


async def test_the_start_and_the_end_of_a_stream_count_the_prompt_alike(lead, client):
    lead.will_say("Hello there")
    told = await stream(client)
    start, end = told[0]["message"]["usage"], told[-2]["usage"]
    assert (end["cache_read_input_tokens"], end["output_tokens"]) == (2, len(lead.tokens("Hello there")))
    assert start == end | {"output_tokens": 0}
    n_prompt = len(lead.engine.submitted[0].tokens)
    assert end["input_tokens"] + end["cache_read_input_tokens"] == n_prompt


async def test_tools_are_called_and_answered(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say(CALL)
    body = (await client.post(URL, json=ASK | {"tools": [ADD]})).json()
    (block,) = body["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "add", {"a": 1})
    assert body["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "two"}
    turns = [
        *ASK["messages"],
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]
    lead.engine.submitted.clear()
    await client.post(URL, json=ASK | {"tools": [ADD], "messages": turns})
    assert "<|im_start|>tool\ntwo<|im_end|>\n<|im_start|>user\nAnd?" in lead.prompt()


async def test_a_streamed_call_is_a_block_with_json_in_pieces(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say("Well.\n" + CALL)
    told = await stream(client, tools=[ADD])
    starts = [event["content_block"]["type"] for event in told if event["type"] == "content_block_start"]
    assert starts == ["text", "tool_use"]
    deltas = [event["delta"] for event in told if event["type"] == "content_block_delta"]
    pieces = [delta.get("partial_json", "") for delta in deltas]
    assert json.loads("".join(pieces)) == {"a": 1}
    assert told[-2]["delta"]["stop_reason"] == "tool_use"


async def test_reasoning_is_a_block_with_a_signature(lead, client):
    lead.use(template=ChatTemplate(THINKS, "", ""))
    lead.will_say("Hm.</think>Yes.")
    told = await stream(client)
    deltas = [event["delta"]["type"] for event in told if event["type"] == "content_block_delta"]
    assert list(dict.fromkeys(deltas)) == ["thinking_delta", "signature_delta", "text_delta"]


async def test_a_stop_sequence_is_named(lead, client):
    lead.will_say("one two three")
    body = (await client.post(URL, json=ASK | {"stop_sequences": [" two"]})).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", " two")


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"max_tokens": 0},
        {"tools": [{"name": "x"}]},
        {"tools": [ADD], "tool_choice": {"type": "tool", "name": "sub"}},
        {"temperature": "hot"},
    ],
)
async def test_nonsense_is_400_in_anthropics_shape(lead, client, fields):
    response = await client.post(URL, json=ASK | fields)
    body = response.json()
    assert (response.status_code, body["type"]) == (400, "error")
    assert body["error"]["type"] == "invalid_request_error"
    assert lead.engine.submitted == []


async def test_a_prompt_that_is_too_long_has_anthropics_sentence(lead, client):
    response = await client.post(URL, json=ASK | {"messages": [{"role": "user", "content": "fox " * 5000}]})
    body = response.json()
    assert (response.status_code, body["error"]["type"]) == (400, "invalid_request_error")
    n_tokens, maximum = re.fullmatch(
        r"prompt is too long: (\d+) tokens > (\d+) maximum", body["error"]["message"]
    ).groups()
    assert (int(n_tokens) > 5000, int(maximum)) == (True, lead.app.state.services.n_ctx - 1)


async def test_a_stream_that_breaks_off_ends_with_an_error_event(lead, client):
    lead.will_say("one two three")
    lead.engine.dies_after = 2
    told = await stream(client)
    assert (told[-1]["type"], told[-1]["error"]["type"]) == ("error", "api_error")


async def test_the_next_turn_has_the_tokens_that_the_model_wrote(lead, client):
    lead.will_think_and_call()
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    ask = ASK | {"tools": [{"name": "add", "input_schema": schema}], "thinking": {"type": "adaptive"}}
    content = (await client.post(URL, json=ask)).json()["content"]
    result = {"type": "tool_result", "tool_use_id": content[-1]["id"], "content": "done"}
    answer = {"role": "assistant", "content": content}
    await client.post(
        URL, json=ask | {"messages": [*ASK["messages"], answer, {"role": "user", "content": [result]}]}
    )
    assert lead.goes_on
