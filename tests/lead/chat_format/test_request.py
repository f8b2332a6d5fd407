import pytest
from pydantic import ValidationError

from lead.chat_format.request import ConversationFields
from lead.settings.conversation import ConversationOptions
from shared.errors import RequestError

USER = {"role": "user", "content": "Hello"}
ANSWER = {"role": "assistant", "content": "It is"}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}


NO_OPTIONS = ConversationOptions()
STARTS_NONE = ConversationOptions(prefill_assistant=False)
CONTINUES = {"continue_final_message": True, "add_generation_prompt": False}


def message_of(role="user", **fields):
    (message,) = ConversationFields(messages=[{"role": role, **fields}]).messages
    return message


def conversation(*messages, options=NO_OPTIONS, **fields):
    return ConversationFields(messages=[*messages], **fields).conversation(options)


@pytest.mark.parametrize(
    ("messages", "options", "fields", "continues"),
    [
        pytest.param([USER, ANSWER], NO_OPTIONS, {}, True, id="an assistant's message at the end"),
        pytest.param([USER], NO_OPTIONS, {}, False, id="another one"),
        pytest.param([USER, ANSWER], STARTS_NONE, {}, False, id="not by the settings"),
        pytest.param([USER, ANSWER], NO_OPTIONS, {"continue_final_message": False}, False, id="not wanted"),
        pytest.param([USER, ANSWER], STARTS_NONE, CONTINUES, True, id="wanted in spite of the settings"),
    ],
)
def test_the_last_message_is_continued(messages, options, fields, continues):
    assert conversation(*messages, options=options, **fields).continues == continues


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([USER, ANSWER], {"continue_final_message": True, "add_generation_prompt": True}),
        ([USER], {"continue_final_message": True}),
        ([USER, ANSWER, ANSWER], {}),
        ([USER, ANSWER | {"tool_calls": [CALL]}], {}),
    ],
)
def test_what_cannot_be_continued_is_refused(messages, fields):
    with pytest.raises(RequestError):
        conversation(*messages, **fields)


def test_a_clients_variables_override_the_settings():
    options = ConversationOptions(reasoning="off", chat_template_kwargs='{"mood": "sad"}')
    said = conversation(USER, chat_template_kwargs={"mood": "glad"}, options=options)
    assert said.variables == {"enable_thinking": False, "mood": "glad"}


def test_reasoning_effort_none_disables_thinking():
    assert conversation(USER, reasoning_effort="none").variables == {"enable_thinking": False}
    said = conversation(USER, reasoning_effort="low")
    assert said.variables == {"enable_thinking": True, "reasoning_effort": "low"}


def test_enable_thinking_must_be_a_boolean():
    with pytest.raises(RequestError, match="enable_thinking"):
        conversation(USER, chat_template_kwargs={"enable_thinking": "yes"})


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"content": [{"type": "input_audio"}]}, "audio input is not supported"),
        ({"content": [{"type": "file"}]}, "file input is not supported"),
        ({"content": [{"type": "text"}]}, r'a part must be \{"type": "text", "text": "\.\.\."\}'),
        ({"content": ["x"]}, "a part must be"),
        *(({"content": [{"type": kind, "text": "x"}]}, "a part must be") for kind in ([], {}, 5, None, True)),
        ({"content": 3}, "content must be text"),
        ({}, "must have content"),
        ({"role": "assistant"}, "must have content or tool_calls"),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}, "name"),
    ],
)
def test_an_invalid_message_is_refused_with_the_reason(message, complaint):
    with pytest.raises(ValidationError, match=complaint):
        message_of(**message)


@pytest.mark.parametrize(
    "fields",
    [{"reasoning": "Hm."}, {"reasoning": "Hm.", "reasoning_content": None}, {"reasoning_content": "Hm."}],
)
@pytest.mark.parametrize("content", [{"content": "Yes."}, {}], ids=["beside content", "alone"])
def test_reasoning_has_two_names(fields, content):
    message = message_of("assistant", **content, **fields)
    assert message.for_template() == {"role": "assistant", "reasoning_content": "Hm."}


def test_reasoning_that_is_no_text_is_left_to_the_template():
    message = message_of(**ANSWER | {"reasoning": {"effort": "low"}})
    assert message.for_template() == {"role": "assistant", "reasoning": {"effort": "low"}}


def test_a_call_of_a_function_from_before_there_were_tools_is_a_call():
    called = {"name": "add", "arguments": '{"a": 1}'}
    (call,) = message_of("assistant", content=None, function_call=called).tool_calls
    assert (call.function.name, call.function.as_object) == ("add", {"a": 1})


def test_a_part_without_a_type_is_text():
    assert message_of(content=[{"text": "Hi"}]).parts == ["Hi"]


@pytest.mark.parametrize(
    ("part", "url"),
    [
        ({"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}}, "data:x"),
        ({"type": "image_url", "image_url": "data:x"}, "data:x"),
        ({"type": "input_image", "image_url": "data:x"}, "data:x"),
        ({"type": "image", "source": {"type": "base64", "data": "eA=="}}, "data:;base64,eA=="),
        ({"type": "image", "source": {"type": "url", "url": "http://x"}}, "http://x"),
        ({"type": "image", "data": "eA==", "mimeType": "image/png"}, "data:;base64,eA=="),
        ({"type": "input_image", "file_id": "f"}, ""),
        ({"type": "image_url", "image_url": 3}, ""),
    ],
)
def test_an_image_is_read_in_the_form_of_each_api(part, url):
    assert message_of(content=[part]).content[0].image_url.url == url


def test_the_role_function_becomes_tool():
    message = {"role": "function", "name": "add", "content": "2"}
    assert conversation(message).messages[0].for_template() == {"role": "tool", "name": "add"}


def test_arguments_that_are_nested_too_deeply_to_be_json_stay_text():
    deep = "[" * 100_000
    call = {**CALL, "function": {"name": "add", "arguments": deep}}
    assert message_of("assistant", tool_calls=[call]).tool_calls[0].function.as_object == deep
