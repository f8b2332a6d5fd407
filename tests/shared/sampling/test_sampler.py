import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.sampling.factory import make_sampler
from shared.sampling.noise import gumbel
from shared.sampling.parameters import MAX_TEXT_TOKENS, SamplingParameters
from shared.sampling.sampler import Sampler, coupled_choice, every_token

SEEDS = st.integers(0, (1 << 63) - 1)
POSITIONS = st.integers(0, 1 << 31)
GREEDY = SamplingParameters(seed=1, temperature=0)
OPEN = SamplingParameters(seed=1, temperature=1, top_k=0, top_p=1, min_p=0)
SHAPES = {
    "flat": lambda _rng, n: np.zeros(n),
    "nearly flat": lambda rng, n: rng.normal(size=n) * 0.01,
    "of a few values": lambda rng, n: rng.integers(0, 3, n),
    "like a model's": lambda rng, n: rng.normal(size=n) * 3,
    "with one favorite": lambda rng, n: np.where(np.arange(n) == rng.integers(n), 30, rng.normal(size=n)),
    "mostly impossible": lambda rng, n: np.where(rng.random(n) < 0.99, -np.inf, rng.normal(size=n)),
    "impossible but for ten": lambda _rng, n: np.where(np.arange(n) % (n // 10), -np.inf, 1.0),
    "wide": lambda rng, n: rng.normal(size=n) * 1e6,
}


class Everything:
    """Filters that leave all candidates, with a temperature."""

    def __init__(self, temperature=1.0):
        self._temperature = np.float32(temperature)

    def apply(self, logits, _position):
        return every_token(len(logits)), logits / self._temperature

    def accept(self, token):
        raise NotImplementedError

    def reset(self):
        raise NotImplementedError


def straightforward(scaled, seed, position):
    """Add noise to every token, and choose the largest sum."""
    return int(np.argmax(scaled + gumbel(seed, position, np.arange(len(scaled)))))


@pytest.mark.parametrize("shape", SHAPES)
@given(SEEDS, POSITIONS, st.integers(2049, 20_000), st.sampled_from([0.3, 1, 5, 1000]))
def test_the_choice_among_all_is_the_one_with_noise_for_each(shape, seed, position, n, temperature):
    logits = SHAPES[shape](np.random.default_rng(seed), n).astype(np.float32) / np.float32(temperature)
    assert coupled_choice(every_token(n), logits, seed, position) == straightforward(logits, seed, position)


@given(SEEDS, POSITIONS)
def test_it_is_at_the_size_of_a_large_vocabulary_too(seed, position):
    logits = np.random.default_rng(seed).normal(size=128_256).astype(np.float32) * 2
    expected = straightforward(logits, seed, position)
    assert coupled_choice(every_token(128_256), logits, seed, position) == expected


def test_close_calls_are_decided_right():
    """With equal logits, the best of the favorites and the best of the others are often close."""
    logits = np.zeros(2100, np.float32)
    chosen = [coupled_choice(every_token(2100), logits, 1, t) for t in range(2000)]
    assert chosen == [straightforward(logits, 1, t) for t in range(2000)]


def test_a_token_of_low_logit_is_chosen_where_its_noise_is_high_enough():
    """Otherwise the tests above could not fail."""
    logits = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    chosen = [coupled_choice(every_token(20_000), logits, 1, t) for t in range(100)]
    favorites = np.argsort(-logits)[:64]
    assert len(set(chosen) - set(favorites.tolist())) > 50


@given(SEEDS, POSITIONS, st.integers(1, 3000))
def test_the_order_of_the_candidates_does_not_matter(seed, position, n):
    rng = np.random.default_rng(seed)
    ids = rng.permutation(2 * n)[:n].astype(np.int32)
    logits = rng.normal(size=n).astype(np.float32)
    order = np.argsort(ids)
    chosen = coupled_choice(ids, logits, seed, position)
    assert chosen == coupled_choice(ids[order], logits[order], seed, position)


def test_logits_that_are_no_numbers_do_not_stop_the_choice():
    logits = np.full(5000, np.nan, np.float32)
    assert 0 <= coupled_choice(every_token(5000), logits, 1, 2) < 5000


def test_every_token_is_shared_and_cannot_be_written_to():
    assert every_token(4096) is every_token(4096)
    with pytest.raises(ValueError, match="read-only"):
        every_token(4096)[0] = 1


# rank


def ranks(parameters, filters, logits, position, n):
    return Sampler(parameters, filters, []).rank(logits, position, n)


@pytest.mark.parametrize("n_vocab", [10, 4096])
@pytest.mark.parametrize(("parameters", "filters"), [(GREEDY, None), (OPEN, Everything())])
def test_the_first_in_rank_is_the_choice(parameters, filters, n_vocab):
    rng = np.random.default_rng(2)
    sampler = Sampler(parameters, filters, [])
    for position in range(30):
        logits = rng.integers(0, 4, n_vocab).astype(np.float32)
        assert sampler.rank(logits, position, 3)[0].token == sampler.choose(logits, position)


@pytest.mark.parametrize("temperature", [0, 1])
def test_ranks_are_the_sorted_scores_and_confidence_their_softmax(temperature):
    logits = np.random.default_rng(3).normal(size=5000).astype(np.float32) * 2
    parameters, filters = (OPEN, Everything()) if temperature else (GREEDY, None)
    scores = logits + (gumbel(1, 9, np.arange(5000)) if temperature else 0.0)
    weights = np.exp(scores - scores.max())
    choices = ranks(parameters, filters, logits, 9, 5)
    order = np.argsort(-scores)[:5]
    assert [choice.token for choice in choices] == order.tolist()
    expected = weights[order] / weights.sum()
    assert [choice.confidence for choice in choices] == pytest.approx(expected.tolist(), rel=1e-4)


def test_equal_ranks_are_in_the_order_of_their_ids():
    logits = np.zeros(5000, np.float32)
    logits[[40, 7, 4000]] = 1
    assert [choice.token for choice in ranks(GREEDY, None, logits, 0, 5)] == [7, 40, 4000, 0, 1]


def test_there_are_no_more_ranks_than_candidates():
    assert len(ranks(GREEDY, None, np.arange(3, dtype=np.float32), 0, 9)) == 3


def test_ranking_leaves_the_logits_as_they_are():
    logits = np.random.default_rng(4).normal(size=5000).astype(np.float32)
    before = logits.copy()
    ranks(GREEDY, None, logits, 0, 3)
    assert np.array_equal(logits, before)


def test_further_back_than_anybody_needs_no_penalty_looks():
    far = SamplingParameters(seed=1, repeat_last_n=MAX_TEXT_TOKENS, repeat_penalty=1.1, dry_multiplier=1)
    assert (far.penalties_window, far.dry_window, far.n_remembered) == (1 << 16,) * 3


def test_breakers_have_a_length_together():
    assert SamplingParameters(seed=1, dry_sequence_breakers=("x" * 32,) * 8)
    with pytest.raises(ValidationError, match="256 characters"):
        SamplingParameters(seed=1, dry_sequence_breakers=("x" * 33,) * 8)


def test_rewinding_gives_the_state_of_that_history(vocabulary):
    parameters = SamplingParameters(seed=1, repeat_penalty=1.5, repeat_last_n=3)
    logits = np.random.default_rng(0).normal(size=vocabulary.n_tokens).astype(np.float32) * 4
    fresh = make_sampler(parameters, vocabulary, [5, 6, 7, 8])
    other = make_sampler(parameters, vocabulary, [1, 2])
    other.accept(3)
    other.rewind([5, 6, 7, 8])
    assert [other.choose(logits, t) for t in range(50)] == [fresh.choose(logits, t) for t in range(50)]


@pytest.mark.parametrize("penalty", [1.0, 1.1])
def test_temperature_zero_settles_ties_as_the_plain_argmax(penalty, vocabulary):
    sampler = make_sampler(SamplingParameters(seed=1, temperature=0, repeat_penalty=penalty), vocabulary, [])
    logits = np.zeros(vocabulary.n_tokens, np.float32)
    logits[[77, 99]] = 2.0
    assert sampler.choose(logits, 0) == 77
