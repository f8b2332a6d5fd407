"""Each message is one line, and comes out as it went in."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lead.engine.messages import (
    Cancel,
    Committed,
    DraftsDropped,
    Explain,
    Explained,
    Finished,
    Load,
    LoadFailed,
    PostDraft,
    Ready,
    SetPolicy,
    Sources,
    Started,
    Submit,
    Tuned,
    decode_command,
    decode_event,
    encode,
)
from shared.sampling.sampler import SamplingParameters

SAMPLING = SamplingParameters(seed=(1 << 63) - 1, temperature=0.1 + 0.2, logit_bias={7: -1e9, 8: 0.1})
COMMANDS = [
    Load(model=Path("m.gguf"), n_ctx=0, n_slots=4, n_batch=8, n_threads=2, n_gpu_layers=-1, depth=3),
    Submit(sequence="s", tokens=[1, 2], sampling=SAMPLING, max_tokens=None),
    Cancel(sequence="s\nt\r\u2028"),
    PostDraft(sequence="s", source="back", base=3, tokens=[4, 5]),
    PostDraft(
        sequence="s",
        source="back",
        base=3,
        tokens=[4, 5],
        parents=[-1, -1],
        confidences=[0.1 + 0.2, 1.0],
        received_at=0.1 + 0.7,
    ),
    Sources(names=["back", "desk"]),
    SetPolicy(policy="sync", depth=3),
    Explain(),
]
EVENTS = [
    Ready(n_ctx=9, n_ctx_sequence=8, n_slots=2, speculates=True, exact=False),
    LoadFailed(reason="no such file:\nm.gguf"),
    Started(sequence="s", n_cached=4),
    Committed(sequence="s", start=4, tokens=[1, 2], n_accepted=1, rejected=[9], sources=["back", "back"]),
    Committed(sequence="s", start=4, tokens=[1]),
    Finished(sequence="s", reason="length"),
    DraftsDropped(source="back", n_stale=3),
    Tuned(n_ahead=4, min_confidence=0.125),
    Explained(report={"step_ms": {"1": 0.5}, "rate": None}),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.type)
def test_a_command_survives_the_way(command):
    assert decode_command(encode(command)) == command


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_survives_the_way(event):
    assert decode_event(encode(event)) == event


@pytest.mark.parametrize("message", [*COMMANDS, *EVENTS], ids=lambda message: message.type)
def test_a_message_is_one_line(message):
    assert encode(message).splitlines(keepends=True) == [encode(message)]


def test_an_event_is_no_command():
    with pytest.raises(ValidationError):
        decode_command(encode(EVENTS[0]))


def test_messages_cannot_be_changed():
    with pytest.raises(ValidationError):
        COMMANDS[2].sequence = "t"


@given(st.integers(0, (1 << 63) - 1), st.floats(0, 1e6))
def test_seed_and_temperature_keep_every_bit(seed, temperature):
    sampling = SamplingParameters(seed=seed, temperature=temperature)
    request = Submit(sequence="s", tokens=[1], sampling=sampling, max_tokens=1)
    assert decode_command(encode(request)) == request


def test_drafted_tokens_are_the_accepted_and_the_rejected():
    assert EVENTS[3].n_drafted == 2
    assert EVENTS[4].n_drafted == 0
