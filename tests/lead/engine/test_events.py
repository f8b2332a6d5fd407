"""Each event is one line and is decoded to what was encoded."""

import pytest

from lead.engine.events import (
    Committed,
    DraftsDropped,
    Explained,
    Finished,
    LoadFailed,
    Ready,
    Started,
    Tuned,
    decode_event,
    encode_event,
)

EVENTS = [
    Ready(n_ctx=9, n_ctx_sequence=8, n_slots=2, speculates=True),
    LoadFailed(reason="no such file:\nm.gguf"),
    Started(sequence="s", n_cached=4),
    Committed(sequence="s", start=4, tokens=[1, 2], n_accepted=1, rejected=[9], sources=["back", "back"]),
    Committed(sequence="s", start=4, tokens=[1]),
    Finished(sequence="s", reason="length"),
    DraftsDropped(source="back", n_stale=3),
    Tuned(n_ahead=4, min_confidence=0.125),
    Explained(report={"step_ms": {"1": 0.5}, "rate": None}),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_is_decoded_to_what_was_encoded(event):
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_is_one_line(event):
    line = encode_event(event)
    assert line.splitlines(keepends=True) == [line]


def test_drafted_tokens_are_the_accepted_and_the_rejected():
    assert EVENTS[3].n_drafted == 2
    assert EVENTS[4].n_drafted == 0
