import json
import random

import pytest

from bench.wrong_backs import wrong_draft
from shared.protocol import Close, Draft, Extend, Open, Tune, parse_back_message
from shared.sampling.parameters import SamplingParameters

SAMPLING = SamplingParameters(seed=1)


@pytest.mark.parametrize(
    ("message", "base"),
    [
        (Open(sequence="s", sampling=SAMPLING, tokens=[1, 2, 3]), 3),
        (Extend(sequence="s", start=3, tokens=[4, 5]), 5),
    ],
)
def test_every_update_is_answered_by_a_valid_draft(message, base):
    draft = parse_back_message(wrong_draft(message, 100, random.Random(1)) or "")
    assert isinstance(draft, Draft)
    assert (draft.sequence, draft.base, len(draft.tokens)) == ("s", base, 4)
    assert max(draft.tokens) < 100


@pytest.mark.parametrize("message", [Close(sequence="s", reason="ended"), Tune(n_ahead=1, min_confidence=0)])
def test_nothing_else_is_answered(message):
    assert wrong_draft(message, 100, random.Random(1)) is None


def test_drafts_differ():
    rng = random.Random(1)
    extend = Extend(sequence="s", start=0, tokens=[1])
    drafts = {tuple(json.loads(wrong_draft(extend, 1000, rng) or "{}")["tokens"]) for _ in range(20)}
    assert len(drafts) == 20
