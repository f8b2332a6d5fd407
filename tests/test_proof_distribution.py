"""Proof 2: sampled tokens follow the target's distribution, with and without drafts.

All seeds are fixed, so these tests give the same result each time. χ² limits are the 0.999 quantiles.
"""

import functools
import itertools
from collections import Counter

import numpy as np
import pytest

from lead.engine.sequence import verify
from shared.cache_edits import SlotMemory
from shared.llama.memory_traits import PLAIN
from shared.llama.span import Span
from shared.sampling.constrained import ConstrainedSampler
from shared.sampling.filters import NativeFilters
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler, coupled_choice
from shared.translation.projection import Projection
from shared.translation.translating_model import TranslatingModel
from tests.shared.translation.toys import KINDS, generator, random_pair

N_VOCAB = 6
END = 5
START, NOTHING = 0, -1  # a text begins with this token; before that there is nothing
CHI2_999 = {2: 13.82, 4: 18.47, 5: 20.52, 7: 24.32, 35: 66.62}
IDS = np.arange(N_VOCAB, dtype=np.int32)


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def chi2(counts, probabilities, n):
    """Pearson's statistic. Cells that are expected less than five times are pooled, as the test demands."""
    expected = n * np.asarray(probabilities)
    counts = np.asarray(counts, float)
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return float(((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum())


def sampler(**parameters):
    given = SamplingParameters(
        **{"seed": 1, "top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1, **parameters}
    )
    return Sampler(given, NativeFilters(given, N_VOCAB, frozenset(), None), [])


class Markov:
    """A language model whose next token depends on the last token: all its texts can be enumerated."""

    def __init__(self, seed, like=None):
        rng = np.random.default_rng(seed)
        self.logits = rng.normal(size=(N_VOCAB, N_VOCAB)).astype(np.float32) * 1.5
        if like is not None:  # a draft model that resembles its target
            self.logits = like.logits + 0.4 * self.logits

    def joint(self, start, n):
        p = softmax(self.logits.astype(float))
        result = {}
        for path in itertools.product(range(N_VOCAB), repeat=n):
            steps = itertools.pairwise((start, *path))
            result[path] = float(np.prod([p[a, b] for a, b in steps]))
        return result

    def drafted(self, chooser, committed, n):
        tokens = list(committed)
        for _ in range(n):
            tokens.append(chooser.choose(self.logits[tokens[-1]], len(tokens)))
        return tokens[len(committed) :]


class TextModel(SlotMemory):
    """Knows the texts of a `Markov`, as far as its bytes tell. It has its own vocabulary."""

    n_batch, n_ctx_slot, n_slots, traits = 16, 100, 1, PLAIN

    def __init__(self, markov, draft, target):
        self._p = np.vstack([softmax(markov.logits.astype(float)), IDS == START])
        self._draft, self._target = draft, target
        self._memory = []
        self._row = functools.cache(self._row)
        self._chance = functools.cache(self._chance)

    def decode(self, spans):
        (span,) = spans
        assert span.start == len(self._memory)
        self._memory += span.tokens
        ends = range(len(self._memory) - span.n_logits + 1, len(self._memory) + 1)
        texts = [b"".join(self._draft.pieces[token] for token in self._memory[:end]) for end in ends]
        return [np.array([self._row(text) for text in texts], np.float32).reshape(-1, len(self._draft))]

    def trim(self, slot, n_keep):
        assert slot == 0
        del self._memory[n_keep:]

    def copy(self, source_slot, slot, n_keep):
        raise AssertionError((source_slot, slot, n_keep))

    def _row(self, text):
        return np.log([max(1e-12, self._chance(NOTHING, text + piece)) for piece in self._draft.pieces])

    def _chance(self, last, data):
        """The probability that `data` or more follows the target token `last`."""
        chance = 0.0 if data else 1.0
        for token, piece in enumerate(self._target.pieces if data else ()):
            if piece.startswith(data):
                chance += self._p[last, token]
            elif data.startswith(piece):
                chance += self._p[last, token] * self._chance(token, data[len(piece) :])
        return chance


class Translating:
    """Drafts with a model that has another vocabulary."""

    def __init__(self, markov, draft, target):
        self._model = TranslatingModel(TextModel(markov, draft, target), Projection(draft, target))

    def drafted(self, chooser, committed, n):
        self._model.trim(0, 0)
        tokens, n_decoded = list(committed), 0
        for _ in range(n):
            (rows,) = self._model.decode([Span(0, n_decoded, tokens[n_decoded:], 1)])
            n_decoded = len(tokens)
            token = chooser.choose(rows[0], n_decoded)
            while better := self._model.look_ahead({0: token}):
                token = chooser.choose(better[0], n_decoded)
            tokens.append(token)
        return tokens[len(committed) :]


def run_two_tokens(target, draft_model, seed, depth):
    """(first two tokens of a sequence, number of accepted tokens), with `depth` draft tokens a step."""
    ours, theirs = sampler(seed=seed), sampler(seed=seed)
    tokens, n_accepted = [START], 0
    while len(tokens) < 3:
        start, m = tokens[-1], len(tokens)
        draft = draft_model.drafted(theirs, tokens, depth)
        chosen = []
        n_accepted += verify(
            draft,
            lambda i, start=start, m=m, draft=draft: ours.choose(
                target.logits[draft[i - 1] if i else start], m + i
            ),
            frozenset(),
            chosen,
        )
        tokens += chosen
    return tuple(tokens[1:3]), n_accepted


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_the_choice_follows_the_tempered_softmax(temperature):
    logits = np.random.default_rng(0).normal(size=N_VOCAB).astype(np.float32) * 2
    chooser = sampler(temperature=temperature)
    counts = np.bincount([chooser.choose(logits, t) for t in range(20_000)], minlength=N_VOCAB)
    assert chi2(counts, softmax(logits.astype(float) / temperature), 20_000) < CHI2_999[5]


def test_the_choice_over_seeds_follows_the_softmax_too():
    logits = np.random.default_rng(1).normal(size=N_VOCAB).astype(np.float32)
    counts = np.bincount([coupled_choice(IDS, logits, seed, 7) for seed in range(20_000)], minlength=N_VOCAB)
    assert chi2(counts, softmax(logits.astype(float)), 20_000) < CHI2_999[5]


def test_neighboring_positions_are_independent():
    logits = np.zeros(N_VOCAB, np.float32)
    chosen = [coupled_choice(IDS, logits, 5, t) for t in range(36_000)]
    pairs = Counter(itertools.pairwise(chosen))
    counts = [pairs[pair] for pair in itertools.product(range(N_VOCAB), repeat=2)]
    assert chi2(counts, np.full(36, 1 / 36), len(chosen) - 1) < CHI2_999[35]


def test_xtc_leaves_the_mixture_of_both_distributions():
    """The top choice is excluded in 40 of 100 cases. In these cases the rest is renormalized."""
    logits = np.array([2.0, 1.5, 0.0, -1.0, -1.0, -1.0], np.float32)
    given = SamplingParameters(
        seed=1, top_k=0, top_p=1, min_p=0, temperature=1, xtc_probability=0.4, xtc_threshold=0.2
    )
    chooser = Sampler(given, NativeFilters(given, N_VOCAB, frozenset(), None), [])
    counts = np.bincount([chooser.choose(logits, t) for t in range(20_000)], minlength=N_VOCAB)
    p = softmax(logits.astype(float))
    without = np.where(np.arange(N_VOCAB) == 0, 0.0, p)
    assert chi2(counts, 0.6 * p + 0.4 * without / without.sum(), 20_000) < CHI2_999[5]


class Allowing:
    """A grammar that always allows the same tokens."""

    def __init__(self, tokens):
        self._tokens = tokens

    def allows(self, tokens):
        return [token in self._tokens for token in tokens]

    def allowed(self):
        return np.array(self._tokens, np.int32)

    def rollback(self, n):
        """It remembers nothing."""

    def copy(self):
        return self


def constrained_counts(logits, allowed, **given):
    parameters = SamplingParameters(
        **{"seed": 1, "top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1, **given}
    )
    chain = NativeFilters(parameters, N_VOCAB, frozenset(), None)
    chooser = ConstrainedSampler(parameters, chain, [], Allowing(allowed), END)
    return np.bincount([chooser.choose(logits, t) for t in range(20_000)], minlength=N_VOCAB)


def test_under_a_grammar_the_distribution_is_that_of_the_allowed_tokens():
    logits = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -1.0], np.float32)
    p = softmax(logits.astype(float)) * np.isin(IDS, [1, 2, 4])
    assert chi2(constrained_counts(logits, [1, 2, 4]), p / p.sum(), 20_000) < CHI2_999[2]


def test_under_a_grammar_filters_come_before_it_in_the_first_try_and_after_it_in_the_second():
    """Top-k leaves 0, 1 and 2. Only if 0 wins do 1, 2 and 4 compete, under the same noise.

    4 is chosen if both 0 and 4 beat 1 and 2.
    """
    logits = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -1.0], np.float32)
    p0, p1, p2, p4 = softmax(logits[[0, 1, 2, 4]].astype(float))
    fourth = p0 * p4 / (p1 + p2 + p4) + p4 * p0 / (p0 + p1 + p2)
    expected = np.array([0, (1 - fourth) * p1 / (p1 + p2), (1 - fourth) * p2 / (p1 + p2), 0, fourth, 0])
    assert chi2(constrained_counts(logits, [1, 2, 4], top_k=3), expected, 20_000) < CHI2_999[2]


def test_filters_leave_the_renormalized_distribution():
    logits = np.array([3.0, 2.0, 1.0, 0.0, -1.0, -2.0], np.float32)
    chooser = sampler(top_k=3)
    counts = np.bincount([chooser.choose(logits, t) for t in range(20_000)], minlength=N_VOCAB)
    assert counts[3:].sum() == 0
    assert chi2(counts[:3], softmax(logits[:3].astype(float)), 20_000) < CHI2_999[4]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_sequences_follow_the_targets_joint_distribution(depth):
    """Accepted, recovered and bonus tokens count together: two tokens against all 36 enumerated pairs."""
    target = Markov(2)
    draft_model = Markov(3, like=target)
    n = 5_000
    runs = [run_two_tokens(target, draft_model, seed, depth) for seed in range(n)]
    counts = Counter(pair for pair, _ in runs)
    joint = target.joint(0, 2)
    assert chi2([counts[path] for path in joint], list(joint.values()), n) < CHI2_999[35]
    assert depth == 0 or sum(accepted for _, accepted in runs) > n / 4


def test_the_same_seed_gives_the_same_tokens_at_any_depth():
    target = Markov(4)
    draft_model = Markov(5, like=target)
    plain = [run_two_tokens(target, draft_model, seed, 0)[0] for seed in range(500)]
    assert plain == [run_two_tokens(target, draft_model, seed, 4)[0] for seed in range(500)]


@pytest.mark.parametrize("kind", KINDS)
def test_with_drafts_in_another_vocabulary_sequences_follow_the_same_distribution(kind):
    target = Markov(6)
    draft_model = Translating(Markov(7, like=target), *random_pair(generator(kind), kind, N_VOCAB))
    n = 1_200
    runs = [run_two_tokens(target, draft_model, seed, 2) for seed in range(n)]
    assert [pair for pair, _ in runs] == [run_two_tokens(target, target, seed, 0)[0] for seed in range(n)]
    counts = Counter(pair for pair, _ in runs)
    joint = target.joint(0, 2)
    assert chi2([counts[path] for path in joint], list(joint.values()), n) < CHI2_999[35]
    assert sum(accepted for _, accepted in runs) > n / 4


@pytest.mark.parametrize("pair", range(12))
def test_coupled_acceptance_reaches_its_bound(pair):
    """P[equal] ≥ (1 - TV) / (1 + TV) (Daliri et al., arXiv 2408.07978), within four standard errors."""
    rng = np.random.default_rng(100 + pair)
    ours = rng.normal(size=N_VOCAB).astype(np.float32) * rng.uniform(0.2, 3)
    theirs = ours + rng.normal(size=N_VOCAB).astype(np.float32) * rng.uniform(0.05, 3)
    distance = 0.5 * np.abs(softmax(ours.astype(float)) - softmax(theirs.astype(float))).sum()
    n = 6_000
    equal = sum(coupled_choice(IDS, ours, 9, t) == coupled_choice(IDS, theirs, 9, t) for t in range(n)) / n
    bound = (1 - distance) / (1 + distance)
    assert equal >= bound - 4 * np.sqrt(bound * (1 - bound) / n)


def test_coupling_beats_drafting_the_likeliest_token_at_high_temperature():
    """Compared with `draft the argmax, sample the target`, on flat distributions that nearly agree."""
    rng = np.random.default_rng(6)
    ours = rng.normal(size=N_VOCAB).astype(np.float32) * 0.5
    theirs = ours + rng.normal(size=N_VOCAB).astype(np.float32) * 0.1
    equal = np.mean(
        [coupled_choice(IDS, ours, 3, t) == coupled_choice(IDS, theirs, 3, t) for t in range(4_000)]
    )
    assert equal > 1.5 * softmax(ours.astype(float))[np.argmax(theirs)]
