import pytest
from pydantic import ValidationError

from lead.chat.request import ConversationFields
from lead.settings.conversation import ConversationOptions
from shared.errors import RequestError

USER = {"role": "user", "content": "Hello"}
ANSWER = {"role": "assistant", "content": "It is"}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}


NO_OPTIONS = ConversationOptions()


def conversation(*messages, options=NO_OPTIONS, **fields):
    return ConversationFields(messages=[*messages], **fields).conversation(options)


def test_an_assistant_message_at_the_end_is_continued():
    assert conversation(USER, ANSWER).continues
    assert not conversation(USER).continues


def test_the_settings_or_the_client_can_turn_continuing_off():
    assert not conversation(USER, ANSWER, options=ConversationOptions(prefill_assistant=False)).continues
    assert not conversation(USER, ANSWER, continue_final_message=False).continues
    assert conversation(
        USER,
        ANSWER,
        continue_final_message=True,
        add_generation_prompt=False,
        options=ConversationOptions(prefill_assistant=False),
    ).continues


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
        ({"role": "user", "content": [{"type": "input_audio"}]}, "audio input is not supported"),
        ({"role": "user", "content": [{"type": "file"}]}, "file input is not supported"),
        ({"role": "user", "content": [{"type": "text"}]}, "a part must be"),
        ({"role": "user", "content": ["x"]}, "a part must be"),
        ({"role": "user", "content": 3}, "content must be text"),
        ({"role": "user"}, "must have content"),
        ({"role": "assistant"}, "must have content or tool_calls"),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}, "name"),
    ],
)
def test_an_invalid_message_is_refused_with_the_reason(message, complaint):
    with pytest.raises(ValidationError, match=complaint):
        ConversationFields(messages=[message])


@pytest.mark.parametrize(
    "fields",
    [{"reasoning": "Hm."}, {"reasoning": "Hm.", "reasoning_content": None}, {"reasoning_content": "Hm."}],
)
def test_reasoning_has_two_names(fields):
    (message,) = ConversationFields(messages=[{"role": "assistant", "content": "Yes."} | fields]).messages
    assert message.for_template() == {"role": "assistant", "reasoning_content": "Hm."}


def test_reasoning_alone_is_an_answer():
    (message,) = ConversationFields(messages=[{"role": "assistant", "reasoning": "Hm."}]).messages
    assert message.reasoning_content == "Hm."


def test_reasoning_that_is_no_text_is_left_to_the_template():
    (message,) = ConversationFields(messages=[ANSWER | {"reasoning": {"effort": "low"}}]).messages
    assert message.for_template() == {"role": "assistant", "reasoning": {"effort": "low"}}


def test_a_call_of_a_function_from_before_there_were_tools_is_a_call():
    called = {"name": "add", "arguments": '{"a": 1}'}
    (message,) = ConversationFields(
        messages=[{"role": "assistant", "content": None, "function_call": called}]
    ).messages
    assert [(call.function.name, call.function.as_object) for call in message.tool_calls] == [
        ("add", {"a": 1})
    ]


def test_a_part_without_a_type_is_text():
    (message,) = ConversationFields(messages=[{"role": "user", "content": [{"text": "Hi"}]}]).messages
    assert message.parts == ["Hi"]


def test_a_part_is_shown_as_it_has_to_be_written():
    with pytest.raises(ValidationError, match=r'a part must be \{"type": "text", "text": "\.\.\."\}'):
        ConversationFields(messages=[{"role": "user", "content": [{"type": "text"}]}])


@pytest.mark.parametrize(
    ("part", "url"),
    [
        ({"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}}, "data:x"),
        ({"type": "image_url", "image_url": "data:x"}, "data:x"),
        ({"type": "input_image", "image_url": "data:x"}, "data:x"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}},
            "data:;base64,eA==",
        ),
        ({"type": "image", "source": {"type": "url", "url": "http://x"}}, "http://x"),
        ({"type": "image", "data": "eA==", "mimeType": "image/png"}, "data:;base64,eA=="),
        ({"type": "input_image", "file_id": "f"}, ""),
        ({"type": "image_url", "image_url": 3}, ""),
    ],
)
def test_an_image_is_read_in_the_form_of_each_api(part, url):
    (message,) = ConversationFields(messages=[{"role": "user", "content": [part]}]).messages
    assert message.content[0].image_url.url == url


def test_the_role_function_becomes_tool():
    message = {"role": "function", "name": "add", "content": "2"}
    assert conversation(message).messages[0].for_template() == {"role": "tool", "name": "add"}


@pytest.mark.parametrize("kind", [[], {}, 5, None, True])
def test_a_part_whose_type_is_no_text_is_refused(kind):
    with pytest.raises(ValidationError, match="a part must be"):
        conversation({"role": "user", "content": [{"type": kind, "text": "Hi"}]})


def test_arguments_that_are_nested_too_deeply_to_be_json_stay_text():
    deep = "[" * 100_000
    call = {**CALL, "function": {"name": "add", "arguments": deep}}
    body = ConversationFields(messages=[{"role": "assistant", "tool_calls": [call]}])
    assert body.messages[0].tool_calls[0].function.as_object == deep
