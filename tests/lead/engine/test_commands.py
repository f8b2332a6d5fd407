"""Each command is one line and is decoded to what was encoded."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lead.engine.commands import (
    Cancel,
    Explain,
    Load,
    PostDraft,
    SetBacks,
    SetPolicy,
    Submit,
    decode_command,
    encode_command,
)
from lead.engine.events import Finished, encode_event
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions

SAMPLING = SamplingParameters(seed=(1 << 63) - 1, temperature=0.1 + 0.2, logit_bias={7: -1e9, 8: 0.1})
COMMANDS = [
    Load(model=Path("m.gguf"), options=ModelOptions(threads=2), depth=3),
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
    SetBacks(names=["back", "desk"]),
    SetPolicy(policy="sync", depth=3),
    Explain(),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.type)
def test_a_command_is_decoded_to_what_was_encoded(command):
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.type)
def test_a_command_is_one_line(command):
    line = encode_command(command)
    assert line.splitlines(keepends=True) == [line]


def test_an_event_is_not_a_command():
    with pytest.raises(ValidationError):
        decode_command(encode_event(Finished(sequence="s", reason="stop")))


def test_a_command_cannot_be_changed():
    with pytest.raises(ValidationError):
        COMMANDS[2].sequence = "t"


@given(st.integers(0, (1 << 63) - 1), st.floats(0, 1e6))
def test_seed_and_temperature_keep_every_bit(seed, temperature):
    sampling = SamplingParameters(seed=seed, temperature=temperature)
    request = Submit(sequence="s", tokens=[1], sampling=sampling, max_tokens=1)
    assert decode_command(encode_command(request)) == request
