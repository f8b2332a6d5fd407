import json
import random

import pytest

from bench.flooding_back import Flood
from shared.protocol import MAX_BACK_MESSAGE_BYTES, Close, Draft, Extend, Open, parse_back_message
from shared.sampling.parameters import SamplingParameters

OPEN = Open(sequence="s", sampling=SamplingParameters(seed=1), tokens=[1, 2, 3])


def opened(kind):
    flood = Flood(kind, 50, random.Random(1))
    flood.on_message(OPEN)
    flood.on_message(Extend(sequence="s", start=3, tokens=[4]))
    return flood


@pytest.mark.parametrize(("kind", "base"), [("stale", 0), ("wrong", 4), ("large", 0)])
def test_what_it_sends_are_valid_drafts(kind, base):
    draft = parse_back_message(opened(kind).next())
    assert isinstance(draft, Draft)
    assert (draft.sequence, draft.base) == ("s", base)
    assert max(draft.tokens) < 50


def test_large_ones_are_almost_as_large_as_a_message_may_be():
    message = opened("large").next()
    assert 60_000 < len(message) <= MAX_BACK_MESSAGE_BYTES
    assert "ignored" in json.loads(message)


def test_nothing_is_sent_for_sequences_that_have_ended():
    flood = opened("stale")
    flood.on_message(Close(sequence="s", reason="ended"))
    assert flood.next() is None


def test_a_new_connection_begins_without_sequences():
    flood = opened("stale")
    flood.reset()
    assert flood.next() is None
