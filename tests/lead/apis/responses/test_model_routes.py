import pytest

from lead.chat_format.template import ChatTemplate
from tests.lead.http.event_streams import events
from tests.lead.http.routes.test_chat_tools import CALL, HERMES, THINKS

pytestmark = pytest.mark.usefixtures("room")

URL = "/v1/responses"
ASK = {"model": "any", "input": "Hello"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = {"type": "function", "name": "add", "parameters": SCHEMA}


async def stream(client, **fields):
    return events(await client.post(URL, json=ASK | {"stream": True} | fields))


async def test_a_response_has_its_shape(lead, client):
    lead.will_say("Hello there")
    body = (await client.post(URL, json=ASK)).json()
    (item,) = body["output"]
    assert (body["object"], body["status"], item["type"], item["status"]) == (
        *("response", "completed", "message", "completed"),
    )
    assert item["content"][0]["text"] == "Hello there"
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + body["usage"]["output_tokens"]


async def test_a_stream_goes_from_created_to_completed_and_is_numbered(lead, client):
    lead.will_say("Hello there")
    told = await stream(client)
    kinds = list(dict.fromkeys(event["type"].removeprefix("response.") for event in told))
    assert kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    deltas = [event["delta"] for event in told if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == told[-1]["response"]["output"][0]["content"][0]["text"] == "Hello there"


async def test_an_answer_that_was_cut_off_is_incomplete(lead, client):
    lead.will_say("one")
    lead.engine.reason = "length"
    last = (await stream(client, max_output_tokens=1))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_a_call_is_an_item(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say(CALL)
    told = await stream(client, tools=[ADD])
    (item,) = told[-1]["response"]["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "add", '{"a": 1}')
    pieces = [e["delta"] for e in told if e["type"] == "response.function_call_arguments.delta"]
    assert "".join(pieces) == item["arguments"]


async def test_a_call_of_a_function_of_a_namespace_names_both(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say(CALL.replace('"add"', '"math__add"'))
    told = await stream(client, tools=[{"type": "namespace", "name": "math", "tools": [ADD]}])
    (item,) = told[-1]["response"]["output"]
    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "add", "math")


async def test_reasoning_is_an_item(lead, client):
    lead.use(template=ChatTemplate(THINKS, "", ""))
    lead.will_say("Hm.</think>Yes.")
    body = (await client.post(URL, json=ASK)).json()
    assert [item["type"] for item in body["output"]] == ["reasoning", "message"]
    assert body["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": 3}, "input"),
        ({"input": [{"type": "web_search_call"}]}, "input"),
        ({"input": [{"type": "file_search_call"}]}, "input"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": []}, "input"),
        ({"input": "fox " * 5000}, "input"),
        ({"text": {"format": {"type": "sound"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "x"}}}}, "text.format"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"metadata": {"a": "b" * 513}}, "metadata"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"max_output_tokens": -5}, "max_output_tokens"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"messages": []}, "messages"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "name": "sub"}}, "tool_choice"),
    ],
)
async def test_nonsense_is_400_naming_the_field(lead, client, fields, param):
    response = await client.post(URL, json=ASK | fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert error["message"].startswith(f"{param}") or error["code"] == "context_length_exceeded"
    assert lead.engine.submitted == []


@pytest.mark.parametrize("streamed", [True, False])
async def test_clients_know_an_input_that_is_too_long_by_its_code(client, streamed):
    response = await client.post(URL, json={"input": "fox " * 5000, "stream": streamed})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_metadata_comes_back(lead, client):
    lead.will_say("x")
    body = (await client.post(URL, json=ASK | {"metadata": {"a": "b"}})).json()
    assert body["metadata"] == {"a": "b"}


async def test_a_stream_that_breaks_off_ends_with_numbered_events_that_say_why(lead, client):
    lead.will_say("one two three")
    lead.engine.dies_after = 2
    told = await stream(client)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    error, failed = told[-2:]
    assert (error["type"], error["message"]) == ("error", "the engine has died")
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"] == {"code": "server_error", "message": "the engine has died"}
    (item,) = failed["response"]["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "one two")


async def test_the_next_turn_has_the_tokens_that_the_model_wrote(lead, client):
    lead.will_think_and_call()
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    ask = ASK | {"tools": [{"type": "function", "name": "add", "parameters": parameters}]}
    output = (await client.post(URL, json=ask)).json()["output"]
    result = {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "done"}
    await client.post(URL, json=ask | {"input": [{"role": "user", "content": "Hello"}, *output, result]})
    assert lead.goes_on
