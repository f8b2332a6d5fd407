import pytest
from pydantic import ValidationError

from lead.engine.commands import Ask, Cancel, SetBacks, SetPolicy, Submit, decode_command
from lead.engine.events import (
    Answer,
    Committed,
    DraftsDropped,
    Finished,
    LoadFailed,
    Ready,
    Started,
    decode_event,
    encode_line,
)
from shared.protocol import Draft, Tune
from shared.sampling.parameters import SamplingParameters

SAMPLING = SamplingParameters(seed=(1 << 63) - 1, temperature=0.1 + 0.2, logit_bias={7: -1e9, 8: 0.1})
DRAFT = Draft(sequence="s", source="back", base=3, tokens=[4, 5])
FLOATS = {"parents": [-1, -1], "confidences": [0.1 + 0.2, 1.0], "received_at": 0.1 + 0.7}
COMMANDS = [
    Submit(sequence="s", tokens=[1, 2], sampling=SAMPLING, max_tokens=None),
    Cancel(sequence="s\nt\r\u2028"),
    DRAFT,
    DRAFT.model_copy(update=FLOATS),
    SetBacks(names=["back", "desk"]),
    SetPolicy(policy="sync", depth=3),
    Ask(number=3, question="Explain"),
]
EVENTS = [
    Ready(n_ctx=9, n_ctx_sequence=8, n_slots=2, speculates=True),
    LoadFailed(reason="no such file:\nm.gguf"),
    Started(sequence="s", n_cached=4),
    Committed(sequence="s", start=4, tokens=[1, 2], n_accepted=1, rejected=[9], sources=["back", "back"]),
    Committed(sequence="s", start=4, tokens=[1]),
    Finished(sequence="s", reason="length"),
    DraftsDropped(source="back", n_stale=3),
    Tune(n_ahead=4, min_confidence=0.125),
    Answer(number=3, reply={"step_ms": {"1": 0.5}, "rate": None}),
]


@pytest.mark.parametrize(
    ("message", "decode"),
    [*((each, decode_command) for each in COMMANDS), *((each, decode_event) for each in EVENTS)],
    ids=lambda given: getattr(given, "type", ""),
)
def test_a_message_is_one_line_and_is_decoded_to_what_was_encoded(message, decode):
    line = encode_line(message)
    assert line.splitlines(keepends=True) == [line]
    assert decode(line) == message


def test_an_event_is_not_a_command():
    with pytest.raises(ValidationError):
        decode_command(encode_line(EVENTS[0]))


def test_a_command_cannot_be_changed():
    with pytest.raises(ValidationError):
        COMMANDS[2].sequence = "t"


def test_drafted_tokens_are_the_accepted_and_the_rejected():
    assert [event.n_drafted for event in EVENTS if isinstance(event, Committed)] == [2, 0]
