import random

import numpy as np
import pytest

from bench.adversarial_back import RandomDrafter, SlowModel, garbled
from shared.llama.memory_traits import PLAIN
from shared.llama.span import Span
from shared.protocol import Close, Draft, Extend, Open, parse_back_message
from shared.sampling.parameters import SamplingParameters

N_VOCAB = 50


@pytest.fixture
def posted():
    return []


@pytest.fixture
def follower(posted):
    return RandomDrafter(N_VOCAB, posted.append, random.Random(1))


def opened(n=3):
    return Open(sequence="s", sampling=SamplingParameters(seed=1), tokens=list(range(n)))


def test_every_news_is_answered_with_a_full_draft(follower, posted):
    follower.on_message(opened(3))
    follower.on_message(Extend(sequence="s", start=3, tokens=[7, 8]))
    assert [(draft.base, len(draft.tokens)) for draft in posted] == [(3, 16), (5, 16)]


def test_its_drafts_are_valid_messages(follower, posted):
    follower.on_message(opened())
    assert parse_back_message(posted[0].model_dump_json()) == posted[0]
    assert max(posted[0].tokens) < N_VOCAB


def test_drafts_are_drawn_anew(follower, posted):
    follower.on_message(opened())
    follower.on_message(Extend(sequence="s", start=3, tokens=[1]))
    assert posted[0].tokens != posted[1].tokens


def test_what_was_never_opened_is_not_drafted_for(follower, posted):
    follower.on_message(Extend(sequence="s", start=0, tokens=[1]))
    assert posted == []


def test_a_closed_sequence_is_forgotten(follower, posted):
    follower.on_message(opened())
    follower.on_message(Close(sequence="s", reason="stop"))
    follower.on_message(Extend(sequence="s", start=3, tokens=[1]))
    assert len(posted) == 1


def test_a_lost_connection_forgets_everything(follower, posted):
    follower.on_message(opened())
    follower.on_disconnect()
    follower.on_message(Extend(sequence="s", start=3, tokens=[1]))
    assert len(posted) == 1


def test_a_lie_begins_with_the_truth():
    draft = Draft(sequence="s", base=4, tokens=[1, 2, 3, 4])
    lies = [garbled(draft, 2, N_VOCAB, random.Random(seed)) for seed in (1, 2)]
    assert [lie.tokens[:2] for lie in lies] == [[1, 2], [1, 2]]
    assert [len(lie.tokens) for lie in lies] == [16, 16]
    assert lies[0].tokens[2:] != lies[1].tokens[2:]
    assert lies[0].base == 4


class Model:
    n_batch, n_vocab = 4, N_VOCAB
    traits = PLAIN

    def decode(self, spans):
        return [np.zeros((span.n_logits, N_VOCAB), np.float32) for span in spans]

    def trim(self, slot, n_keep):
        self.trimmed = (slot, n_keep)


def test_a_slow_model_sleeps_before_every_step_and_answers_as_before():
    slept, model = [], Model()
    slow = SlowModel(model, 0.5, slept.append)
    (rows,) = slow.decode([Span(0, 0, [1], 1)])
    slow.trim(0, 3)
    assert (slept, rows.shape, model.trimmed) == ([0.5], (1, N_VOCAB), (0, 3))
