import pytest

from lead.apis.responses.responses_request import ResponsesRequest
from lead.chat_format.fields import MAX_MESSAGES
from lead.chat_format.request import ConversationFields
from lead.chat_format.unused_fields import warn_left_out
from lead.settings.conversation import ConversationOptions
from shared.errors import RequestError


def called(call_id, arguments='{"a": 1}'):
    return {"type": "function_call", "call_id": call_id, "name": "add", "arguments": arguments}


def function_call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def call(call_id, arguments='{"a": 1}'):
    return function_call(call_id, "add", arguments)


def output(call_id, content, kind="function_call"):
    return {"type": f"{kind}_output", "call_id": call_id, "output": content}


def result(call_id, content):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def reasoning(**fields):
    return {"type": "reasoning", "summary": [], **fields}


USER = {"role": "user", "content": "Hello"}
SAID = [{"type": "output_text", "text": "Yes.", "annotations": []}]
MESSAGE = {"type": "message", "role": "assistant", "content": SAID}
PARTS = [{"type": "input_text", "text": "two"}]
INPUTS = {
    "text": ("Hello", [USER]),
    "messages with and without a type": (
        [{"role": "developer", "content": "d"}, {"type": "message", **USER}],
        [{"role": "developer", "content": "d"}, USER],
    ),
    "parts": ([{"role": "user", "content": PARTS}], [{"role": "user", "content": PARTS}]),
    "a whole turn with reasoning, content, calls and results": (
        [
            USER,
            reasoning(content=[{"type": "reasoning_text", "text": "Hm."}]),
            MESSAGE | {"status": "completed"},
            *(called("c1"), called("c2", ""), output("c1", "one"), output("c2", PARTS)),
        ],
        [
            USER,
            {
                "role": "assistant",
                "reasoning_content": "Hm.",
                "content": SAID,
                "tool_calls": [call("c1"), call("c2", "{}")],
            },
            *(result("c1", "one"), result("c2", PARTS)),
        ],
    ),
    "a summary in place of reasoning": (
        [reasoning(summary=[{"type": "summary_text", "text": "Hm."}]), called("c1"), output("c1", "one")],
        [
            {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [call("c1")]},
            result("c1", "one"),
        ],
    ),
    "reasoning that the client cannot read": (
        [USER, reasoning(encrypted_content="x"), USER],
        [USER, USER],
    ),
    "several contents of one answer": (
        [MESSAGE, MESSAGE | {"content": "No."}, USER],
        [{"role": "assistant", "content": [*SAID, {"type": "text", "text": "No."}]}, USER],
    ),
    "calls of other tools than functions": (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+é"},
            {"type": "local_shell_call", "call_id": "c2", "action": {"command": ["ls"]}},
            called("c3") | {"namespace": "math"},
            output("c1", "one", "custom_tool_call"),
            output("c2", "two", "local_shell_call"),
            output("c3", "three"),
        ],
        [
            {
                "role": "assistant",
                "tool_calls": [
                    function_call("c1", "patch", '{"input": "+é"}'),
                    function_call("c2", "local_shell", '{"command": ["ls"]}'),
                    function_call("c3", "math__add", '{"a": 1}'),
                ],
            },
            *(result("c1", "one"), result("c2", "two"), result("c3", "three")),
        ],
    ),
    "a search on OpenAI's servers": (
        [USER, {"type": "web_search_call", "action": {"query": "x"}}, USER],
        [USER, USER],
    ),
}
SCHEMA = {"type": "object", "properties": {}}
NAMED = {"name": "n", "schema": SCHEMA}
STRICT = {"name": "add", "parameters": SCHEMA, "strict": True}
OPTIONS = {
    "limits and sampling": (
        {"max_output_tokens": 5, "temperature": 0.5, "stream": True, "metadata": {"x": "y"}},
        {"max_tokens": 5, "temperature": 0.5, "stream": True},
    ),
    "reasoning effort": ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
    "a flat schema": (
        {"text": {"format": {"type": "json_schema", **NAMED, "strict": True}}},
        {"response_format": {"type": "json_schema", "json_schema": NAMED}},
    ),
    "plain text": ({"text": {"format": {"type": "text"}}}, {"response_format": {"type": "text"}}),
    "functions, but not the tools of OpenAI's servers": (
        {"tools": [{"type": "function", **STRICT, "description": None}, {"type": "web_search"}]},
        {"tools": [{"type": "function", "function": STRICT}]},
    ),
    "a choice": ({"tool_choice": "required"}, {"tool_choice": "required"}),
    "a choice by name": (
        {"tool_choice": {"type": "function", "name": "add"}},
        {"tool_choice": {"type": "function", "function": {"name": "add"}}},
    ),
    "a choice by name and namespace": (
        {"tool_choice": {"type": "function", "namespace": "math", "name": "add"}},
        {"tool_choice": {"type": "function", "function": {"name": "math__add"}}},
    ),
}


def chat_of(**fields):
    return ResponsesRequest.model_validate({"input": "Hello"} | fields).to_chat()


@pytest.mark.parametrize(("items", "expected"), INPUTS.values(), ids=INPUTS)
def test_input_items_are_converted_to_messages(items, expected):
    chat = chat_of(input=items)
    assert chat["messages"] == expected
    body = ConversationFields.model_validate(chat)
    assert body.conversation(ConversationOptions()).messages == body.messages


def test_instructions_are_a_system_message():
    assert chat_of(instructions="Be brief.")["messages"] == [{"role": "system", "content": "Be brief."}, USER]


@pytest.mark.parametrize(("fields", "expected"), OPTIONS.values(), ids=OPTIONS)
def test_options_are_converted(fields, expected):
    chat = chat_of(**fields)
    del chat["messages"]
    assert {key: value for key, value in chat.items() if value is not None} == expected


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"previous_response_id": "r"}, "the lead stores no conversations"),
        ({"conversation": {"id": "c"}}, "the lead stores no conversations"),
        ({"background": True}, "the lead stores no conversations"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "'item_reference' are not supported"),
        *(({"input": [reasoning(content=wrong)]}, "reasoning") for wrong in ("a", ["a"], {"text": "a"}, 5)),
        ({"input": [reasoning(content=[None])]}, "reasoning"),
    ],
)
def test_what_needs_stored_data_or_is_none_is_refused(fields, complaint):
    with pytest.raises(RequestError, match=complaint):
        chat_of(**fields)


def test_as_many_items_as_allowed_can_be_one_message():
    items = [reasoning(content=[{"text": "a"}]) for _ in range(MAX_MESSAGES // 2)]
    (message,) = chat_of(input=[*items, *(called(str(n)) for n in range(MAX_MESSAGES // 2))])["messages"]
    assert message["reasoning_content"] == "a" * (MAX_MESSAGES // 2)
    assert [each["id"] for each in message["tool_calls"]] == [str(n) for n in range(MAX_MESSAGES // 2)]


ADD = {"type": "function", "name": "add", "parameters": SCHEMA}
NAMESPACE = {"type": "namespace", "name": "math", "description": "Sums.", "tools": [ADD, {"type": "custom"}]}


@pytest.mark.parametrize("kind", ["web_search", "file_search", "code_interpreter", "local_shell", "custom"])
def test_tools_that_are_no_functions_are_left_out_and_the_log_says_so_once(kind, caplog):
    warn_left_out.cache_clear()
    for _ in range(2):
        request = ResponsesRequest.model_validate({"input": "Hello", "tools": [{"type": kind}, ADD]})
        assert [tool["function"]["name"] for tool in request.to_chat()["tools"]] == ["add"]
        assert request.usable_tools() == [ADD]
    assert caplog.messages == [f"tools: {kind}: left out: the model can call only functions"]


def test_the_functions_of_a_namespace_are_offered_under_its_name():
    request = ResponsesRequest.model_validate({"input": "Hello", "tools": [NAMESPACE, ADD]})
    assert [tool["function"]["name"] for tool in request.to_chat()["tools"]] == ["math__add", "add"]
    assert request.names() == {"math__add": {"name": "add", "namespace": "math"}}


@pytest.mark.parametrize("tools", [None, "x", {}, [None], ["x"]])
def test_a_namespace_without_a_list_of_tools_is_refused(tools):
    with pytest.raises(RequestError, match=r"^tools: a namespace must have a list of tools$"):
        chat_of(tools=[NAMESPACE | {"tools": tools}])


def test_all_that_codex_sends_is_understood():
    part = {"type": "input_text", "text": "Hi"}
    request = {
        "model": "big",
        "stream": True,
        "input": [
            {"type": "message", "id": "msg_1", "role": role, "content": [part]}
            for role in ("developer", "developer", "user", "user")
        ],
        "tools": [ADD | {"description": "Adds.", "strict": False}, NAMESPACE, {"type": "web_search"}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a2",
        "client_metadata": {"session_id": "01a2"},
    }
    chat = ConversationFields.model_validate(ResponsesRequest.model_validate(request).to_chat())
    assert [tool.function.name for tool in chat.tools] == ["add", "math__add"]


@pytest.mark.parametrize(
    ("tools", "told"), [([{"type": "web_search"}], True), ([ADD, {"type": "web_search"}], False)]
)
def test_a_model_that_is_left_without_tools_is_told_so(tools, told):
    messages = chat_of(instructions="Be brief.", tools=tools)["messages"]
    assert any("No tools are available" in message["content"] for message in messages) == told
