import pytest

from lead.chat_format.request import ConversationFields
from lead.tokenizer.jobs import JobLimits, read_conversation, write_conversation

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1.5}}}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": [{"role": "assistant", "reasoning_content": "hm"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "é👋\u2028"}], "x": [1.5]}]},
        {"messages": [{"role": "assistant", "tool_calls": [CALL]}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": []},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [1]}}}},
        {"response_format": {"type": "json_object", "schema": {}}},
        {"chat_template_kwargs": {"enable_thinking": False}, "json_schema": {}, "documents": [{}]},
    ],
)
def test_a_conversation_comes_out_as_it_went_in(fields):
    body = ConversationFields.model_validate({"messages": [{"role": "user", "content": "Hi"}]} | fields)
    again = read_conversation(write_conversation(body))
    assert again == body
    assert [m.model_fields_set for m in again.messages] == [m.model_fields_set for m in body.messages]


def test_limits_grow_with_the_size_of_a_job():
    small, large = JobLimits.of(0, 4.0), JobLimits.of(4 << 20, 4.0)
    assert (small.cpu_seconds, large.cpu_seconds) == (4.0, 12.0)
    assert (small.heap_bytes >> 20, large.heap_bytes >> 20) == (96, 256)
