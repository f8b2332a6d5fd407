import random

import pytest

from bench.hostile import HostileMessages
from shared.errors import ProtocolError
from shared.protocol import MAX_BACK_MESSAGE_BYTES, Draft, VocabularyId, parse_back_message

KNOWN = {"s": 3}
VOCABULARY = VocabularyId(fingerprint="f", n_tokens=50, model="m")


@pytest.fixture
def messages():
    return HostileMessages(random.Random(1), VOCABULARY)


def parsed(frame):
    try:
        return parse_back_message(frame)
    except ProtocolError:
        return None


@pytest.mark.parametrize(
    ("attack", "bases"),
    [("sure", {3}), ("stale", {0}), ("duplicated", {3}), ("oversized", {3}), ("invalid", {3, (1 << 31) - 1})],
)
def test_drafts_get_past_the_parser(messages, attack, bases):
    frames = [messages.frame(KNOWN, attack) for _ in range(50)]
    assert {parsed(frame).base for frame in frames} == bases
    assert max(map(len, frames)) <= MAX_BACK_MESSAGE_BYTES
    assert (min(map(len, frames)) > MAX_BACK_MESSAGE_BYTES - 3000) == (attack == "oversized")


def test_most_of_the_mixture_is_read_and_some_is_right(messages):
    told = HostileMessages(random.Random(1), VOCABULARY, [7] * 100)
    drafts = [parsed(told.frame(KNOWN)) for _ in range(200)]
    right = [draft for draft in drafts if isinstance(draft, Draft) and draft.tokens[0] == 7]
    assert 100 < len(right) < 200
    assert sum(isinstance(parsed(messages.frame(KNOWN)), Draft) for _ in range(200)) > 150
