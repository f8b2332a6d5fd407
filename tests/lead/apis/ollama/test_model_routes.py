import datetime as dt
import json

import pytest

from lead.chat_format.template import ChatTemplate
from lead.engine_client.engine_state import EngineState
from tests.lead.http.routes.test_chat_tools import CALL, HERMES, THINKS

pytestmark = pytest.mark.usefixtures("room")

HELLO = {"role": "user", "content": "Hello"}
CHAT = {"model": "toy:latest", "messages": [HELLO]}
ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


def lines(response):
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


async def chat(client, **fields):
    return (await client.post("/api/chat", json=CHAT | {"stream": False} | fields)).json()


async def test_a_chat_is_streamed_as_lines_unless_the_client_says_otherwise(lead, client):
    lead.will_say("Hello there")
    told = lines(await client.post("/api/chat", json=CHAT))
    assert "".join(part["message"]["content"] for part in told) == "Hello there"
    assert [part["done"] for part in told] == [False] * (len(told) - 1) + [True]
    assert {part["model"] for part in told} == {"toy:latest"}
    assert all(part["message"]["role"] == "assistant" for part in told)


async def test_the_end_counts_tokens_and_nanoseconds(lead, client):
    lead.will_say("Hello there")
    end = await chat(client)
    assert end["done_reason"] == "stop"
    assert end["prompt_eval_count"] == len(lead.engine.submitted[0].tokens)
    assert end["eval_count"] == len(lead.tokens("Hello there"))
    assert end["total_duration"] == end["prompt_eval_duration"] + end["eval_duration"]


async def test_an_answer_that_was_cut_off_says_so(lead, client):
    lead.will_say("one two")
    lead.engine.reason = "length"
    assert (await chat(client))["done_reason"] == "length"


async def test_options_are_sampling_parameters_and_those_about_loading_are_ignored(lead, client):
    lead.will_say("x")
    options = {"temperature": 0.5, "top_k": 3, "seed": 7, "num_predict": 9, "num_ctx": 4096, "stop": ["z"]}
    await chat(client, options=options, keep_alive="5m")
    (request,) = lead.engine.submitted
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (0.5, 3, 7)
    assert request.max_tokens == 9


async def test_a_call_is_whole_and_has_an_object_of_arguments(lead, client):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say("Well.\n" + CALL)
    told = lines(await client.post("/api/chat", json=CHAT | {"tools": [ADD]}))
    calls = [part["message"]["tool_calls"] for part in told if "tool_calls" in part["message"]]
    assert calls == [[{"function": {"name": "add", "arguments": {"a": 1}}}]]
    lead.will_say(CALL)
    assert (await chat(client, tools=[ADD]))["message"]["tool_calls"] == calls[0]


@pytest.mark.parametrize(
    ("call", "result"),
    [({}, {"tool_name": "add"}), ({"index": 0, "id": "call_9"}, {"tool_call_id": "call_9"})],
    ids=["by name", "by id, as Open WebUI sends it"],
)
async def test_results_of_tools_reach_the_model(lead, client, call, result):
    lead.use(template=ChatTemplate(HERMES, "", ""))
    lead.will_say("Two.")
    called = {"function": {"name": "add", "arguments": {"a": 1}}} | call
    turns = [
        HELLO,
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "content": "two", **result},
    ]
    assert (await chat(client, messages=turns, tools=[ADD]))["message"]["content"] == "Two."
    assert '"arguments": {"a": 1}' in lead.prompt()
    assert "<|im_start|>tool\ntwo<|im_end|>" in lead.prompt()


async def test_thoughts_are_apart(lead, client):
    lead.use(template=ChatTemplate(THINKS, "", ""))
    lead.will_say("Hm.</think>Yes.")
    message = (await chat(client))["message"]
    assert (message["thinking"], message["content"]) == ("Hm.", "Yes.")
    lead.will_say("Hm.</think>Yes.")
    told = lines(await client.post("/api/chat", json=CHAT))
    assert "".join(part["message"].get("thinking", "") for part in told) == "Hm."


@pytest.mark.parametrize("form", ["json", {"type": "object", "properties": {"a": {"type": "integer"}}}])
async def test_a_format_is_a_grammar(lead, client, form):
    lead.will_say("{}")
    await chat(client, format=form)
    assert lead.engine.submitted[0].sampling.grammar


async def test_generate_answers_a_question(lead, client):
    lead.will_say("Hello")
    told = lines(await client.post("/api/generate", json={"prompt": "Hi", "system": "Be brief."}))
    assert "".join(part["response"] for part in told) == "Hello"
    assert "Be brief." in lead.prompt()
    assert "<|im_start|>user\nHi" in lead.prompt()


async def test_generate_continues_a_raw_text(lead, client):
    lead.will_say(" time")
    body = {"prompt": "Once upon a", "raw": True, "stream": False, "format": "json", "options": {"top_k": 2}}
    answer = (await client.post("/api/generate", json=body)).json()
    assert (answer["response"], answer["done"]) == (" time", True)
    assert lead.prompt() == "Once upon a"
    assert lead.engine.submitted[0].sampling.top_k == 2


@pytest.mark.parametrize(("path", "body"), [("chat", {"messages": []}), ("generate", {"keep_alive": 60})])
async def test_a_request_for_nothing_loads_the_model(lead, client, path, body):
    answer = (await client.post(f"/api/{path}", json=body | {"model": "toy"})).json()
    assert (answer["done"], answer["done_reason"]) == (True, "load")
    assert lead.engine.submitted == []


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("chat", {"messages": [HELLO | {"images": ["aGk="]}]}, '"m" does not support vision'),
        ("generate", {"prompt": "x", "images": ["aGk="]}, '"m" does not support vision'),
        ("generate", {"prompt": "x", "suffix": "y"}, '"m" does not support insert'),
        ("generate", {"prompt": "x", "template": "{{ .Prompt }}"}, "template:"),
        ("chat", {"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role:"),
        ("chat", {"messages": 5}, "messages:"),
        ("generate", {"prompt": "x", "raw": True, "options": {"top_p": "x"}}, "options.top_p:"),
        *(
            ("chat", CHAT | {"options": options}, named)
            for options, named in [
                ({"temperature": "hot"}, "options.temperature"),
                ({"temperature": -1}, "options.temperature"),
                ({"num_predict": "x"}, "options.num_predict"),
                ({"mirostat": 2}, "options.mirostat: its random numbers"),
                ({"temprature": 1}, "options.temprature: unknown field: did you mean options.temperature?"),
            ]
        ),
    ],
)
async def test_what_is_refused_is_said_in_ollamas_shape(lead, client, path, body, said):
    response = await client.post(f"/api/{path}", json=body | {"model": "m"})
    assert response.status_code == 400
    assert response.json()["error"].startswith(said)
    assert lead.engine.submitted == []


async def test_a_stream_that_breaks_off_ends_with_an_error(lead, client):
    lead.will_say("one two three")
    lead.engine.dies_after = 2
    told = lines(await client.post("/api/chat", json=CHAT))
    assert told[-1].keys() == {"error"}


async def test_a_sleeping_model_is_not_in_memory(lead, client):
    lead.engine.state = EngineState.SLEEPING
    assert (await client.get("/api/ps")).json() == {"models": []}


# As Open WebUI asks (backend/open_webui/routers/ollama.py, utils/payload.py and utils/misc.py)

JSON = {"content-type": "application/json"}  # on GET, too


async def test_open_webui_finds_the_model(lead, client):
    assert (await client.get("/api/version", headers=JSON)).json()["version"]
    (listed,) = (await client.get("/api/tags", headers=JSON)).json()["models"]
    assert listed["model"] == listed["name"] == "toy:latest"
    assert isinstance(listed["size"], int)
    (loaded,) = (await client.get("/api/ps", headers=JSON)).json()["models"]
    assert listed.items() <= loaded.items()
    assert loaded["context_length"] == 4096
    assert int(dt.datetime.fromisoformat(loaded["expires_at"]).timestamp()) > 0
    about = (await client.post("/api/show", json={"name": "toy:latest", "model": "toy:latest"})).json()
    assert {"completion", "tools"} <= set(about["capabilities"])
    assert (about["details"], about["template"]) == (listed["details"], lead.template.source)


async def test_open_webui_chats_with_all_its_parameters(lead, client):
    lead.will_say("Hello there")
    options = {"temperature": 1, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 3, "stop": ["User:"]}
    options |= {"num_ctx": 2048, "num_batch": 512, "num_keep": 24, "num_predict": 60, "repeat_last_n": 64}
    options |= {"repeat_penalty": 1.1, "tfs_z": 1, "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5.0}
    options |= {"use_mmap": True, "use_mlock": False, "num_thread": 2, "num_gpu": 1}
    messages = [{"role": "system", "content": "Be brief."}, HELLO | {"images": []}]
    body = {"model": "toy:latest", "messages": messages, "stream": True, "options": options}
    told = lines(await client.post("/api/chat", json=body | {"keep_alive": "5m", "num_ctx": 2048}))
    assert "".join(part["message"]["content"] for part in told) == "Hello there"
    assert told[-1]["done"]
    assert {"total_duration", "load_duration", "prompt_eval_count", "eval_count"} <= told[-1].keys()
    (request,) = lead.engine.submitted
    assert (request.max_tokens, request.sampling.seed) == (60, 3)


async def test_open_webui_unloads_the_model_which_does_not_wake_it(lead, client, monkeypatch):
    woken = []
    monkeypatch.setattr(lead.engine, "wake", lambda: woken.append(1))
    body = {"model": "toy:latest", "keep_alive": 0, "prompt": ""}
    answer = (await client.post("/api/generate", json=body)).json()
    assert (answer["done"], answer["done_reason"], woken) == (True, "unload", [])
    answer = (await client.post("/api/generate", json=body | {"keep_alive": "5m"})).json()
    assert (answer["done_reason"], woken) == ("load", [1])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/pull", {"model": "x", "name": "x", "insecure": False}),
        ("POST", "/api/push", {"model": "x"}),
        ("POST", "/api/create", {"model": "x", "stream": True}),
        ("POST", "/api/copy", {"source": "x", "destination": "y"}),
        ("DELETE", "/api/delete", {"model": "x"}),
        ("POST", "/api/embed", {"model": "x", "input": ["Hello"], "truncate": True}),
        ("POST", "/api/embeddings", {"model": "x", "prompt": "Hello"}),
    ],
)
async def test_open_webui_can_show_why_something_is_refused(client, method, path, body):
    response = await client.request(method, path, json=body)
    assert response.status_code == 501
    assert isinstance(response.json()["error"], str)


async def test_the_next_turn_has_the_tokens_that_the_model_wrote(lead, client):
    lead.will_think_and_call()
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "add", "parameters": parameters}}
    question = {"role": "user", "content": "Hello"}
    ask = {"model": "any", "stream": False, "think": True, "tools": [tool], "messages": [question]}
    answer = (await client.post("/api/chat", json=ask)).json()["message"]
    result = {"role": "tool", "tool_name": "add", "content": "done"}
    await client.post("/api/chat", json=ask | {"messages": [question, answer, result]})
    assert lead.goes_on
