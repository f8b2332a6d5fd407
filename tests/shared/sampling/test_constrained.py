import numpy as np
import pytest

from shared.sampling.constrained import ConstrainedSampler
from shared.sampling.filters import NativeFilters
from shared.sampling.parameters import SamplingParameters

N_VOCAB = 8
END = 7
LOGITS = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], np.float32)


class Script:
    """Allows one set of tokens after the other, and nothing after the last."""

    is_ready = True

    def __init__(self, *sets, at=0):
        self._sets, self.at = sets, at
        self.n_accepted = self._n_beyond = 0

    def allows(self, tokens):
        return [self._n_beyond > 0 or self._allows(token) for token in tokens]

    def allowed(self):
        return np.array([token for token in range(N_VOCAB) if self._allows(token)], np.int32)

    def accept(self, token):
        self.n_accepted += 1
        if self._n_beyond or not self._allows(token):
            self._n_beyond += 1
        else:
            self.at += 1

    def rollback(self, n):
        n_beyond = min(n, self._n_beyond)
        self._n_beyond -= n_beyond
        self.at -= n - n_beyond

    def copy(self):
        return Script(*self._sets, at=self.at)

    def _allows(self, token):
        return self.at < len(self._sets) and token in self._sets[self.at]


def sampler(*sets, history=(), **parameters):
    given = SamplingParameters(**{"seed": 1, "temperature": 0, **parameters})
    filters = None if given.is_greedy else NativeFilters(given, N_VOCAB, frozenset({END}), None)
    return ConstrainedSampler(given, filters, list(history), Script(*sets), END)


def test_a_choice_that_is_allowed_is_the_choice_without_a_grammar():
    assert sampler({3, 7}).choose(LOGITS, 0) == 7


def test_otherwise_it_is_the_best_of_what_is_allowed():
    assert sampler({2, 3}).choose(LOGITS, 0) == 3


def test_filters_see_only_what_is_allowed():
    """Top-k over all tokens would leave a token that is not allowed."""
    constrained = sampler({0, 1, 2}, temperature=1, top_k=1)
    assert {constrained.choose(LOGITS, t) for t in range(50)} == {2}


def test_where_nothing_is_allowed_the_text_ends():
    constrained = sampler({3}, history=[3])
    assert constrained.choose(LOGITS - 10 * (np.arange(N_VOCAB) == END), 0) == END


def test_the_prompt_is_not_what_the_grammar_is_about():
    assert sampler({2}, {4}, history=[5, 5, 2], grammar_start=2).choose(LOGITS, 3) == 4


def test_it_goes_back_to_the_committed_tokens():
    constrained = sampler({1, 2}, {3}, {4})
    for token in (1, 3, 4):
        constrained.accept(token)
    constrained.rewind([2])
    assert constrained.choose(LOGITS, 1) == 3


def test_after_a_token_that_is_not_allowed_it_says_nothing_until_it_is_taken_back():
    constrained = sampler({1}, {2})
    constrained.accept(6)
    assert constrained.choose(LOGITS, 1) == 7
    constrained.rewind([1])
    assert constrained.choose(LOGITS, 1) == 2


@pytest.mark.parametrize("n_kept", [0, 5, 40, 199])
def test_wherever_it_goes_back_to_the_state_is_that_of_the_history(n_kept):
    sets = [{i % 5} for i in range(201)]
    constrained = sampler(*sets)
    history = [i % 5 for i in range(200)]
    for token in history:
        constrained.accept(token)
    constrained.rewind(history[:n_kept])
    assert constrained.choose(LOGITS, n_kept) == n_kept % 5
    for token in history[n_kept:]:
        constrained.accept(token)
    assert constrained.choose(LOGITS, 200) == 0


def test_going_back_reads_nothing_again():
    constrained = sampler(*[{0}] * 1000)
    for _ in range(500):
        constrained.accept(0)
    n_accepted = constrained._constraint.n_accepted
    constrained.rewind([0] * 490)
    assert constrained._constraint.n_accepted == n_accepted


@pytest.mark.parametrize("n_kept", [0, 3, 31, 32, 40])
def test_a_sampler_of_a_text_that_begins_alike_starts_from_there(n_kept):
    sets = [{i % 7} for i in range(60)]
    texts = [i % 7 for i in range(40)]
    first = sampler(*sets, history=texts)
    other = ConstrainedSampler(
        SamplingParameters(seed=1, temperature=0), None, [*texts[:n_kept], n_kept % 7], first, END
    )
    assert other._constraint.n_accepted <= 1
    assert other.choose(LOGITS, n_kept + 1) == (n_kept + 1) % 7
    assert first.choose(LOGITS, 40) == 40 % 7, "the first one goes its own way"


def test_the_best_choice_of_a_ranking_is_the_choice():
    for allowed in ({7, 1}, {1, 2, 3}, {5}):
        constrained = sampler(allowed, temperature=1, min_p=0, top_p=1)
        for position in range(20):
            ranking = constrained.rank(LOGITS, position, 3)
            assert ranking[0].token == constrained.choose(LOGITS, position)
            assert {choice.token for choice in ranking} <= allowed
