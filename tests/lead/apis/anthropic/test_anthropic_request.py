import pytest
from pydantic import ValidationError

from lead.apis.anthropic.anthropic_request import MessagesRequest
from lead.chat.request import ConversationFields
from lead.chat.unused_fields import warn_left_out
from lead.settings.conversation import ConversationOptions
from shared.errors import RequestError

ADD = {"type": "object", "properties": {"a": {"type": "integer"}}}


def text(words):
    return {"type": "text", "text": words}


def use(call_id, **arguments):
    return {"type": "tool_use", "id": call_id, "name": "add", "input": arguments}


def result(call_id, content):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def call(call_id, arguments):
    return {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}


MESSAGES = {
    "text": ({"messages": [{"role": "user", "content": "Hello"}]}, [{"role": "user", "content": "Hello"}]),
    "a system prompt as text": (
        {"system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}]},
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    ),
    "a system prompt in cached blocks": (
        {
            "system": [text("Be brief.") | {"cache_control": {"type": "ephemeral"}}, text("Be kind.")],
            "messages": [{"role": "user", "content": [text("Hello"), text("there")]}],
        },
        [{"role": "system", "content": "Be brief.\nBe kind."}, {"role": "user", "content": "Hello\nthere"}],
    ),
    "thinking": (
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                        {"type": "redacted_thinking", "data": "x"},
                        text("Yes."),
                    ],
                }
            ]
        },
        [{"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}],
    ),
    "tool calls and their results": (
        {
            "messages": [
                {"role": "user", "content": "1 and 2?"},
                {"role": "assistant", "content": [text("Let me see."), use("c1", a=1), use("c2", b="é")]},
                {
                    "role": "user",
                    "content": [
                        result("c1", "one"),
                        result("c2", [text("two"), text("lines")]),
                        text("Go on."),
                    ],
                },
            ]
        },
        [
            {"role": "user", "content": "1 and 2?"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [call("c1", '{"a": 1}'), call("c2", '{"b": "é"}')],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "two\nlines"},
            {"role": "user", "content": "Go on."},
        ],
    ),
    "a call without text, and an empty result": (
        {
            "messages": [
                {"role": "assistant", "content": [use("c1")]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]},
            ]
        },
        [
            {"role": "assistant", "content": "", "tool_calls": [call("c1", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": ""},
        ],
    ),
    "an answer to be continued": (
        {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good"}]},
        [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good"}],
    ),
}
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
OPTIONS = {
    "sampling": (
        {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "metadata": {"user_id": "x"}},
        {"temperature": 0.5, "top_p": 0.9, "top_k": 40},
    ),
    "thinking enabled": (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"chat_template_kwargs": {"enable_thinking": True}},
    ),
    "thinking disabled": (
        {"thinking": {"type": "disabled"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "template variables before thinking": (
        {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"enable_thinking": True}},
    ),
    "a schema": (
        {"output_config": {"format": {"type": "json_schema", "schema": ADD}}},
        {"response_format": {"type": "json_schema", "schema": ADD}},
    ),
    "a schema of older clients": (
        {"output_format": {"type": "json_schema", "schema": ADD}},
        {"response_format": {"type": "json_schema", "schema": ADD}},
    ),
    "effort": ({"output_config": {"effort": "max", "format": None}}, {"reasoning_effort": "max"}),
    "tools": (
        {
            "tools": [
                {"name": "add", "description": "Adds.", "input_schema": ADD},
                {"name": "sub", "input_schema": ADD},
            ]
        },
        {
            "tools": [
                {"type": "function", "function": {"name": "add", "parameters": ADD, "description": "Adds."}},
                {"type": "function", "function": {"name": "sub", "parameters": ADD}},
            ]
        },
    ),
    "any tool": ({"tool_choice": {"type": "any"}}, {"tool_choice": "required", "parallel_tool_calls": True}),
    "no tool": ({"tool_choice": {"type": "none"}}, {"tool_choice": "none", "parallel_tool_calls": True}),
    "one automatic call": (
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"tool_choice": "auto", "parallel_tool_calls": False},
    ),
    "one tool by name": (
        {"tool_choice": {"type": "tool", "name": "add"}},
        {"tool_choice": {"type": "function", "function": {"name": "add"}}, "parallel_tool_calls": True},
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_converted(name):
    request, expected = MESSAGES[name]
    chat = MessagesRequest.model_validate(request).to_chat()
    assert chat["messages"] == expected
    body = ConversationFields.model_validate(chat)
    assert body.conversation(ConversationOptions()).messages == body.messages


BILLING = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;"


@pytest.mark.parametrize(
    ("system", "prompt"),
    [
        (f"{BILLING}\nYou help.", "You help."),
        (f"{BILLING}You help.", "You help."),
        ([text(BILLING), text("You help."), text("Always.")], "You help.\nAlways."),
        ([text("x-anthropic-billing-header: cch=1"), text("You help.")], "You help."),
        (f"What is {BILLING}", f"What is {BILLING}"),
        (f"You help.\n{BILLING}", f"You help.\n{BILLING}"),
    ],
)
def test_the_billing_header_of_claude_code_is_left_out(system, prompt):
    chat = MessagesRequest.model_validate(HELLO | {"system": system}).to_chat()
    assert chat["messages"][0] == {"role": "system", "content": prompt}


@pytest.mark.parametrize("system", [BILLING, [text(BILLING)]])
def test_a_system_prompt_of_a_billing_header_alone_is_none(system):
    chat = MessagesRequest.model_validate(HELLO | {"system": system}).to_chat()
    assert [message["role"] for message in chat["messages"]] == ["user"]


def test_the_billing_header_can_be_kept():
    request = MessagesRequest.model_validate(HELLO | {"system": BILLING})
    assert request.to_chat(keep_billing_header=True)["messages"][0]["content"] == BILLING


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_converted(name):
    request, expected = OPTIONS[name]
    chat = MessagesRequest.model_validate(HELLO | request).to_chat()
    del chat["messages"]
    always = {"chat_template_kwargs": {}, "max_tokens": 4096, "stream": False}
    assert {name: value for name, value in chat.items() if value is not None} == always | expected


def test_limits_and_stop_sequences_are_converted():
    request = HELLO | {"max_tokens": 5, "stop_sequences": ["END"], "stream": True}
    chat = MessagesRequest.model_validate(request).to_chat()
    assert (chat["max_tokens"], chat["stop"], chat["stream"]) == (5, ["END"], True)


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ({"type": "document"}, "document input is not supported"),
        ({"type": "document", "source": {"type": "base64", "data": "x"}}, "document input is not supported"),
        ({"type": "document", "source": {"type": "text"}}, "a document block must have a text"),
        ({"type": "text"}, "a text block must have a text"),
        (result("c1", [{"type": "document"}]), "document input is not supported"),
    ],
)
def test_blocks_other_than_text_and_images_are_refused(block, complaint):
    request = MessagesRequest.model_validate({"messages": [{"role": "user", "content": [block]}]})
    with pytest.raises(RequestError, match=complaint):
        request.to_chat()


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        HELLO | {"max_tokens": 0},
    ],
)
def test_invalid_requests_are_refused(request_):
    with pytest.raises(ValidationError):
        MessagesRequest.model_validate(request_)


@pytest.mark.parametrize("kind", [[], {}, {"a": 1}, 5])
def test_a_block_whose_type_is_no_text_is_refused(kind):
    request = MessagesRequest(messages=[{"role": "user", "content": [{"type": kind, "text": "Hi"}]}])
    with pytest.raises(RequestError, match="input is not supported"):
        request.to_chat()


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "mcp_toolset", "mcp_server_name": "files"},
        {"type": "from_the_future_20290101"},
    ],
)
def test_tools_of_anthropics_servers_are_left_out_and_the_log_says_so_once(tool, caplog):
    warn_left_out.cache_clear()
    tools = [{"name": "add", "input_schema": ADD}, tool]
    for _ in range(2):
        chat = MessagesRequest.model_validate(HELLO | {"tools": tools}).to_chat()
        assert [each["function"]["name"] for each in chat["tools"]] == ["add"]
    assert [record.message for record in caplog.records] == [
        f"tools: {tool['type']}: left out: only Anthropic's servers can run it"
    ]


NO_TOOLS = "No tools are available here: say so where you are asked to use one."


@pytest.mark.parametrize(
    ("system", "prompt"), [(None, NO_TOOLS), ("You search.", f"You search.\n{NO_TOOLS}"), (BILLING, NO_TOOLS)]
)
def test_a_model_that_is_left_without_tools_is_told_so(system, prompt):
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    request = HELLO | {"system": system, "tools": tools, "tool_choice": {"type": "auto"}}
    chat = MessagesRequest.model_validate(request).to_chat()
    assert chat["messages"][0] == {"role": "system", "content": prompt}
    assert "tools" not in chat


@pytest.mark.parametrize("tools", [None, []])
def test_a_model_that_is_offered_no_tools_is_told_nothing(tools):
    chat = MessagesRequest.model_validate(HELLO | {"tools": tools}).to_chat()
    assert [message["role"] for message in chat["messages"]] == ["user"]


@pytest.mark.parametrize("kind", ["bash_20250124", "text_editor_20250728", "computer_20250124"])
def test_tools_of_anthropic_that_clients_run_are_refused_by_name(kind):
    with pytest.raises(
        RequestError, match=f"^tools: only Anthropic's models know {kind}: give it an input_sch"
    ):
        MessagesRequest.model_validate(HELLO | {"tools": [{"type": kind, "name": "bash"}]})


@pytest.mark.parametrize("kind", ["custom", "bash_20250124", None])
def test_a_tool_with_a_schema_is_offered_whatever_its_type(kind):
    tool = {"type": kind, "name": "add", "input_schema": ADD, "defer_loading": True, "cache_control": None}
    chat = MessagesRequest.model_validate(HELLO | {"tools": [tool]}).to_chat()
    assert chat["tools"] == [{"type": "function", "function": {"name": "add", "parameters": ADD}}]


def test_an_image_stays_where_it_is_among_texts():
    blocks = [text("See:"), {"type": "image", "source": {"type": "base64", "data": "x"}}]
    chat = MessagesRequest(messages=[{"role": "user", "content": [result("c1", blocks), *blocks]}]).to_chat()
    assert chat["messages"] == [
        {"role": "tool", "tool_call_id": "c1", "content": blocks},
        {"role": "user", "content": blocks},
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"text": "Hi"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hi"}},
        {"type": "tool_reference", "tool_name": "Hi"},
    ],
)
def test_what_is_text_under_another_name_is_read(block):
    request = MessagesRequest(messages=[{"role": "user", "content": [block]}])
    assert request.to_chat()["messages"] == [{"role": "user", "content": "Hi"}]


def test_all_that_claude_code_sends_is_understood():
    request = HELLO | {
        "model": "big",
        "system": [text(BILLING), text("You help.") | {"cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "add", "description": "Adds.", "input_schema": ADD}],
        "metadata": {"user_id": "{}"},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }
    chat = ConversationFields.model_validate(MessagesRequest.model_validate(request).to_chat())
    assert chat.reasoning_effort == "high"
