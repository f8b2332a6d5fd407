import itertools
import json

import pytest

from shared.errors import ProtocolError
from shared.protocol import (
    MAX_DRAFT_TOKENS,
    MAX_LEAD_MESSAGE_BYTES,
    MAX_TOKENS_PER_MESSAGE,
    BranchPart,
    Close,
    Draft,
    Extend,
    Open,
    Refused,
    Welcome,
    fits_into_open,
    parse_back_message,
    parse_lead_message,
)
from shared.sampling.call_grammars import CallGrammars
from shared.sampling.parameters import SamplingParameters
from tests.back.linking import HELLO

DRAFT = Draft(sequence="s", base=3, tokens=[1, 2])
TREE = Draft(sequence="s", base=3, tokens=[5, 6, 7], parents=[-1, 0, 0], confidences=[0.9, 0.5, 0.25])


@pytest.mark.parametrize("message", [HELLO, DRAFT, TREE])
def test_what_a_back_says_is_read_as_it_was_said(message):
    assert parse_back_message(message.model_dump_json()) == message


@pytest.mark.parametrize(
    "message",
    [
        Welcome(back="id", name="b"),
        Refused(reason="because"),
        Open(sequence="s", sampling=SamplingParameters(seed=2**62, logit_bias={5: -1.5}), tokens=[1]),
        Extend(sequence="s", start=1, tokens=[2], part=BranchPart(index=1, of=2)),
        Close(sequence="s", reason="ended"),
    ],
)
def test_what_a_lead_says_is_read_as_it_was_said(message):
    assert parse_lead_message(message.model_dump_json()) == message


def test_fields_of_newer_peers_are_ignored():
    data = json.loads(DRAFT.model_dump_json()) | {"mood": [0]}
    assert parse_back_message(json.dumps(data)) == DRAFT


@pytest.mark.parametrize(
    "change",
    [
        *({"type": "nonsense"}, {"sequence": ""}, {"sequence": "s" * 65}, {"base": -1}, {"base": 2**31}),
        *({"base": "many"}, {"tokens": []}, {"tokens": [-1]}, {"tokens": [2**31]}),
        *({"tokens": [1] * (MAX_DRAFT_TOKENS + 1)}, {"tokens": None}, {"tokens": [1, 2], "parents": [-1]}),
        *({"tokens": [1, 2], "parents": [-1, 1]}, {"tokens": [1, 2], "parents": [-1, -2]}),
        *({"tokens": [1, 2], "confidences": [0.5]}, {"tokens": [1], "confidences": [1.1]}),
    ],
)
def test_a_draft_out_of_bounds_is_refused(change):
    with pytest.raises(ProtocolError):
        parse_back_message(json.dumps(json.loads(DRAFT.model_dump_json()) | change))


@pytest.mark.parametrize("name", ["", "n" * 65, "a b", "x\x1b[2J", "<script>"])
def test_a_name_that_could_act_on_a_screen_or_page_is_refused(name):
    with pytest.raises(ProtocolError, match="name"):
        parse_back_message(json.dumps(json.loads(HELLO.model_dump_json()) | {"name": name}))


@pytest.mark.parametrize("junk", ["", "{", "[]", "3", "null", b"\xff\xfe"])
def test_junk_is_refused(junk):
    with pytest.raises(ProtocolError):
        parse_back_message(junk)


def test_the_beginning_of_a_draft_is_a_draft():
    draft = Draft(sequence="s", base=1, tokens=[5, 6, 7], parents=[-1, -1, 0], confidences=[0.5, 0.4, 0.3])
    assert draft.first(2) == Draft(
        sequence="s", base=1, tokens=[5, 6], parents=[-1, -1], confidences=[0.5, 0.4]
    )
    assert draft.first(3) is draft


def test_the_largest_open_that_is_told_fits_into_a_frame():
    sampling = SamplingParameters(seed=1, grammar="é" * 490_000)
    assert fits_into_open(sampling)
    tokens = [(1 << 31) - 1] * MAX_TOKENS_PER_MESSAGE
    text = Open(sequence="s" * 64, sampling=sampling, tokens=tokens).model_dump_json()
    assert len(text.encode()) <= MAX_LEAD_MESSAGE_BYTES
    assert not fits_into_open(SamplingParameters(seed=1, grammar="é" * 495_000))


def test_grammars_that_backs_are_not_told_need_no_room():
    calls = CallGrammars("<add>", {"add": "x" * 2 * MAX_LEAD_MESSAGE_BYTES})
    assert fits_into_open(SamplingParameters(seed=1, calls=calls))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_each_side_branch_is_in_one_part(n):
    parts = [BranchPart(index=index, of=n) for index in range(n)]
    for position, token in itertools.product(range(7), range(7)):
        assert sum(part.has(position, token) for part in parts) == 1


@pytest.mark.parametrize("part", [{"index": 0, "of": 0}, {"index": -1, "of": 2}, {"index": 0, "of": 65}])
def test_a_part_out_of_bounds_is_refused(part):
    with pytest.raises(ProtocolError):
        parse_lead_message(
            json.dumps({"type": "extend", "sequence": "s", "start": 0, "tokens": [], "part": part})
        )
