import httpx
import pytest
from httpx_sse import EventSource

from shared.answer_stream import AnswerStream


def stream(text):
    return AnswerStream(
        EventSource(httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text))
    )


ENDED = ': ping\n\ndata: {"a": 1}\n\nevent: x\ndata: {"b":\ndata: 2}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(("text", "done"), [(ENDED, True), (ENDED.replace("data: [DONE]", ""), False)])
async def test_events_are_read_to_the_end_with_and_without_waiting(text, done):
    waiting, blocking = stream(text), stream(text)
    expected = [{"a": 1}, {"b": 2}, *[{}] * done]
    assert [event async for event in waiting] == list(blocking) == expected
    assert waiting.done is blocking.done is done


def test_what_is_no_json_is_refused_however_deep_it_is():
    with pytest.raises(ValueError, match="recursion limit"):
        list(stream(f"data: {'[' * 5000}\n\n"))
