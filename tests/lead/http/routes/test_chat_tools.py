import json

import pytest

from lead.chat_format.template import ChatTemplate
from tests.lead.http.event_streams import events

pytestmark = pytest.mark.usefixtures("room")

URL = "/v1/chat/completions"
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
NO_SCHEMA = {"type": "function", "function": {"name": "x", "parameters": {"type": "no"}}}
NO_GRAMMAR = {"type": "function", "function": {"name": "y", "parameters": {"$ref": "elsewhere"}}}
GRAMMAR = 'root ::= "x"'
ASK = {"messages": [{"role": "user", "content": "Hello"}], "tools": [ADD]}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
HERMES = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TAKES_OUT = HERMES.replace("m.content", "(m.content or '').split('</think>')[-1]")
THINKS = HERMES + "{% if add_generation_prompt %}<think>\n{% endif %}"


@pytest.fixture
def hermes(lead):
    lead.use(template=ChatTemplate(HERMES, "", "<|im_end|>"))
    return lead


async def ask(client, **fields):
    return (await client.post(URL, json=ASK | fields)).json()


async def stream(client, **fields):
    return events(await client.post(URL, json=ASK | {"stream": True} | fields))


async def test_a_call_is_a_message_of_its_own_shape(hermes, client):
    hermes.will_say(CALL)
    (choice,) = (await ask(client))["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert call == {
        "id": call["id"],
        "type": "function",
        "function": {"name": "add", "arguments": '{"a": 1}'},
    }
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")


async def test_a_streamed_call_is_name_first_then_arguments(hermes, client):
    hermes.will_say(CALL)
    chunks = (await stream(client))[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    (first, *others) = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert (first["index"], first["type"], first["function"]) == (
        0,
        "function",
        {"name": "add", "arguments": ""},
    )
    assert "".join(call["function"]["arguments"] for call in others) == '{"a": 1}'
    assert not any(delta.get("content") for delta in deltas)
    assert [
        chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"][0]["finish_reason"]
    ] == ["tool_calls"]


async def test_calls_follow_grammars_once_they_have_begun(hermes, client):
    hermes.will_say(CALL)
    await ask(client)
    (request,) = hermes.engine.submitted
    assert request.sampling.grammar is None
    assert request.sampling.calls.grammars.keys() == {"add"}
    assert request.sampling.grammar_start == len(request.tokens)


async def test_calls_without_a_grammar_are_free_and_the_log_says_so_once(hermes, client, caplog):
    for _ in range(2):
        hermes.will_say(CALL)
        (choice,) = (await ask(client, tools=[ADD, NO_GRAMMAR]))["choices"]
        assert choice["finish_reason"] == "tool_calls"
    (said,) = [each.message for each in caplog.records if "tools: y: " in each.message]
    assert "are not checked" in said


async def test_strict_calls_without_a_grammar_are_refused(hermes, client):
    strict = {"type": "function", "function": NO_SCHEMA["function"] | {"strict": True}}
    assert (await ask(client, tools=[strict]))["error"]["param"] == "tools"
    assert hermes.engine.submitted == []


async def test_the_template_tells_of_the_tools(hermes, client):
    hermes.will_say("x")
    await ask(client)
    assert json.loads(hermes.prompt().split("<|im_start|>")[0])["function"]["name"] == "add"


async def test_tools_that_may_not_be_called_are_not_told_of(hermes, client):
    hermes.will_say(CALL)
    body = await ask(client, tool_choice="none")
    assert hermes.prompt().startswith("<|im_start|>user")
    assert body["choices"][0]["message"]["content"] == CALL


async def test_a_template_without_tools_has_them_described(lead, client):
    lead.will_say('{"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}')
    body = await ask(client)
    assert '"name": "add"' in lead.prompt()
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


@pytest.mark.parametrize("reasoning_format", ["auto", "deepseek"])
async def test_reasoning_comes_apart(lead, client, reasoning_format):
    lead.use(template=ChatTemplate(THINKS, "", ""))
    lead.will_say("Hm.\n</think>\n\nYes.")
    (choice,) = (await ask(client, reasoning_format=reasoning_format))["choices"]
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("Hm.", "Yes.")


@pytest.mark.parametrize("template", [TAKES_OUT, THINKS])
@pytest.mark.parametrize("began", [{"reasoning_content": "Once"}, {"content": "<think>\nOnce"}])
async def test_reasoning_that_the_client_began_goes_on(lead, client, template, began):
    lead.use(template=ChatTemplate(template, "", ""))
    lead.will_say(" more.\n</think>\n\nYes.")
    began = {"role": "assistant", **began}
    (choice,) = (await ask(client, messages=[*ASK["messages"], began], tools=[]))["choices"]
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == (" more.", "Yes.")


async def test_reasoning_is_streamed_apart(lead, client):
    lead.use(template=ChatTemplate(THINKS, "", ""))
    lead.will_say("Hm.\n</think>\n\nYes.")
    deltas = [chunk["choices"][0]["delta"] for chunk in (await stream(client))[:-1]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Yes."


async def test_reasoning_stays_where_it_was_if_that_is_wanted(lead, client):
    lead.use(template=ChatTemplate(THINKS, "", ""))
    lead.will_say("Hm.</think>Yes.")
    (choice,) = (await ask(client, reasoning_format="none", tools=[]))["choices"]
    assert choice["message"] == {"role": "assistant", "content": "<think>\nHm.</think>Yes."}


async def test_a_call_that_was_cut_off_ended_by_length(hermes, client):
    hermes.will_say(CALL[:-20])
    hermes.engine.reason = "length"
    (choice,) = (await ask(client))["choices"]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": "x"}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"tools": [ADD] * 129}, "tools"),
        ({"tools": [NO_SCHEMA]}, "tools"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "sub"}}}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"grammar": GRAMMAR}, "grammar"),
        ({"response_format": {"type": "sound"}}, "response_format"),
        ({"response_format": {"type": "json_object", "schema": 3}}, "response_format"),
        ({"response_format": {"type": "json_object", "schema": {"type": "hiccup"}}}, "response_format"),
        ({"tools": None, "grammar": GRAMMAR, "response_format": {"type": "json_object"}}, "grammar"),
    ],
)
async def test_nonsense_is_400_naming_the_field(lead, client, fields, param):
    response = await client.post(URL, json=ASK | fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert lead.engine.submitted == []
