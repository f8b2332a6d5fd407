from functools import partial

import pytest
from pydantic import ValidationError

from lead.apis.anthropic.anthropic_request import MessagesRequest
from lead.chat_format.request import ConversationFields
from lead.chat_format.unused_fields import warn_left_out
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


def said(role, *content, **more):
    return {"role": role, "content": content[0] if isinstance(content[0], str) else [*content], **more}


def tool(call_id, content):
    return said("tool", content, tool_call_id=call_id)


def function(name, **more):
    return {"type": "function", "function": {"name": name, "parameters": ADD, **more}}


user, assistant = partial(said, "user"), partial(said, "assistant")
CACHED = text("Be brief.") | {"cache_control": {"type": "ephemeral"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
MESSAGES = {
    "text": ([user("Hello")], [user("Hello")]),
    "cached blocks": ([user(CACHED, text("Hello"))], [user("Be brief.\nHello")]),
    "thinking": (
        [assistant(THOUGHT, {"type": "redacted_thinking", "data": "x"}, text("Yes."))],
        [assistant("Yes.", reasoning_content="Hm.")],
    ),
    "tool calls and their results": (
        [
            user("1 and 2?"),
            assistant(text("Let me see."), use("c1", a=1), use("c2", b="é")),
            user(result("c1", "one"), result("c2", [text("two"), text("lines")]), text("Go on.")),
        ],
        [
            user("1 and 2?"),
            assistant("Let me see.", tool_calls=[call("c1", '{"a": 1}'), call("c2", '{"b": "é"}')]),
            *(tool("c1", "one"), tool("c2", "two\nlines"), user("Go on.")),
        ],
    ),
    "a call without text, and an empty result": (
        [assistant(use("c1")), user({"type": "tool_result", "tool_use_id": "c1"})],
        [assistant("", tool_calls=[call("c1", "{}")]), tool("c1", "")],
    ),
    "an answer to be continued": ([user("Hello"), assistant("Good")], [user("Hello"), assistant("Good")]),
}
HELLO = {"messages": [user("Hello")]}
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "top_k": 40}
THINKING, NOT_THINKING = ({"chat_template_kwargs": {"enable_thinking": wanted}} for wanted in (True, False))
DISABLED = {"thinking": {"type": "disabled"}}
FORMAT = {"type": "json_schema", "schema": ADD}
OPTIONS = {
    "sampling": (SAMPLING | {"metadata": {"user_id": "x"}}, SAMPLING),
    "limits": ({"max_tokens": 5, "stop_sequences": ["END"]}, {"max_tokens": 5, "stop": ["END"]}),
    "a stream": ({"stream": True}, {"stream": True}),
    "thinking enabled": ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, THINKING),
    "thinking disabled": (DISABLED, NOT_THINKING),
    "template variables before thinking": (DISABLED | THINKING, THINKING),
    "a schema": ({"output_config": {"format": FORMAT}}, {"response_format": FORMAT}),
    "a schema of older clients": ({"output_format": FORMAT}, {"response_format": FORMAT}),
    "effort": ({"output_config": {"effort": "max", "format": None}}, {"reasoning_effort": "max"}),
    "tools": (
        {"tools": [{"name": "add", "description": "Adds.", "input_schema": ADD}]},
        {"tools": [function("add", description="Adds.")]},
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


def chat_of(**fields):
    return MessagesRequest.model_validate(HELLO | fields).to_chat()


@pytest.mark.parametrize(("messages", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_messages_are_converted(messages, expected):
    chat = chat_of(messages=messages)
    assert chat["messages"] == expected
    body = ConversationFields.model_validate(chat)
    assert body.conversation(ConversationOptions()).messages == body.messages


BILLING = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;"


@pytest.mark.parametrize(
    ("system", "prompt"),
    [
        ("Be brief.", "Be brief."),
        ([CACHED, text("Be kind.")], "Be brief.\nBe kind."),
        (f"{BILLING}\nYou help.", "You help."),
        (f"{BILLING}You help.", "You help."),
        ([text(BILLING), text("You help."), text("Always.")], "You help.\nAlways."),
        ([text("x-anthropic-billing-header: cch=1"), text("You help.")], "You help."),
        (f"What is {BILLING}", f"What is {BILLING}"),
        (f"You help.\n{BILLING}", f"You help.\n{BILLING}"),
    ],
)
def test_the_system_prompt_is_without_the_billing_header_of_claude_code(system, prompt):
    assert chat_of(system=system)["messages"] == [said("system", prompt), user("Hello")]


@pytest.mark.parametrize("system", [BILLING, [text(BILLING)]])
def test_a_system_prompt_of_a_billing_header_alone_is_none(system):
    assert chat_of(system=system)["messages"] == [user("Hello")]


def test_the_billing_header_can_be_kept():
    request = MessagesRequest.model_validate(HELLO | {"system": BILLING})
    assert request.to_chat(keep_billing_header=True)["messages"][0]["content"] == BILLING


@pytest.mark.parametrize(("fields", "expected"), OPTIONS.values(), ids=OPTIONS)
def test_options_are_converted(fields, expected):
    chat = chat_of(**fields)
    del chat["messages"]
    always = {"chat_template_kwargs": {}, "max_tokens": 4096, "stream": False}
    assert {name: value for name, value in chat.items() if value is not None} == always | expected


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ({"type": "document"}, "document input is not supported"),
        ({"type": "document", "source": {"type": "base64", "data": "x"}}, "document input is not supported"),
        ({"type": "document", "source": {"type": "text"}}, "a document block must have a text"),
        ({"type": "text"}, "a text block must have a text"),
        (result("c1", [{"type": "document"}]), "document input is not supported"),
        *(({"type": kind, "text": "Hi"}, "input is not supported") for kind in ([], {}, {"a": 1}, 5)),
    ],
)
def test_blocks_other_than_text_and_images_are_refused(block, complaint):
    with pytest.raises(RequestError, match=complaint):
        chat_of(messages=[user(block)])


@pytest.mark.parametrize("wrong", [{"messages": []}, {"messages": [said("tool", "x")]}, {"max_tokens": 0}])
def test_invalid_requests_are_refused(wrong):
    with pytest.raises(ValidationError):
        MessagesRequest.model_validate(HELLO | wrong)


@pytest.mark.parametrize(
    "offered",
    [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "mcp_toolset", "mcp_server_name": "files"},
        {"type": "from_the_future_20290101"},
    ],
)
def test_tools_of_anthropics_servers_are_left_out_and_the_log_says_so_once(offered, caplog):
    warn_left_out.cache_clear()
    for _ in range(2):
        chat = chat_of(tools=[{"name": "add", "input_schema": ADD}, offered])
        assert [each["function"]["name"] for each in chat["tools"]] == ["add"]
    assert caplog.messages == [f"tools: {offered['type']}: left out: it runs on Anthropic's servers only"]


NO_TOOLS = "No tools are available here: say so where you are asked to use one."


@pytest.mark.parametrize(
    ("system", "prompt"), [(None, NO_TOOLS), ("You search.", f"You search.\n{NO_TOOLS}"), (BILLING, NO_TOOLS)]
)
def test_a_model_that_is_left_without_tools_is_told_so(system, prompt):
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    chat = chat_of(system=system, tools=tools, tool_choice={"type": "auto"})
    assert chat["messages"][0] == said("system", prompt)
    assert "tools" not in chat


@pytest.mark.parametrize("tools", [None, []])
def test_a_model_that_is_offered_no_tools_is_told_nothing(tools):
    assert chat_of(tools=tools)["messages"] == [user("Hello")]


@pytest.mark.parametrize("kind", ["bash_20250124", "text_editor_20250728", "computer_20250124"])
def test_tools_of_anthropic_that_clients_run_are_refused_by_name(kind):
    reason = f"^tools: {kind} is built into Anthropic's models only. Give the tool an inp"
    with pytest.raises(RequestError, match=reason):
        chat_of(tools=[{"type": kind, "name": "bash"}])


@pytest.mark.parametrize("kind", ["custom", "bash_20250124", None])
def test_a_tool_with_a_schema_is_offered_whatever_its_type(kind):
    offered = {"type": kind, "name": "add", "input_schema": ADD, "defer_loading": True, "cache_control": None}
    assert chat_of(tools=[offered])["tools"] == [function("add")]


def test_an_image_stays_where_it_is_among_texts():
    blocks = [text("See:"), {"type": "image", "source": {"type": "base64", "data": "x"}}]
    chat = chat_of(messages=[user(result("c1", blocks), *blocks)])
    assert chat["messages"] == [tool("c1", "") | {"content": blocks}, user(*blocks)]


@pytest.mark.parametrize(
    "block",
    [
        {"text": "Hi"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hi"}},
        {"type": "tool_reference", "tool_name": "Hi"},
    ],
)
def test_what_is_text_under_another_name_is_read(block):
    assert chat_of(messages=[user(block)])["messages"] == [user("Hi")]


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
