import numpy as np
import pytest

from bench.guessing_sampler import GuessingSampler, NamedText
from lead.simulation.text import DraftSkill

N_TOKENS, N_VOCAB = 400, 1000
LOGITS = np.zeros(N_VOCAB, np.float32)


@pytest.fixture(scope="module")
def text():
    return NamedText(N_TOKENS, 1, N_VOCAB)


def guess(text, skill, position):
    sampler = GuessingSampler(text, skill, text.tokens[:position])
    return sampler.rank(LOGITS, position, 1)[0].token


@pytest.mark.parametrize("acceptance", [0.6, 0.8])
def test_it_is_right_as_often_as_asked(text, acceptance):
    n_right = sum(guess(text, DraftSkill(acceptance), i) == text.tokens[i] for i in range(N_TOKENS))
    assert n_right / N_TOKENS == pytest.approx(acceptance, abs=0.08)


def test_after_a_wrong_token_it_goes_astray_until_it_is_told_the_text(text):
    sampler = GuessingSampler(text, DraftSkill(0.99), text.tokens[:5])
    sampler.accept(text.tokens[5] + 1)
    assert sampler.rank(LOGITS, 6, 1)[0].token != text.tokens[6]
    sampler.rewind(text.tokens[:6])
    assert sampler.rank(LOGITS, 6, 1)[0].token == text.tokens[6]
