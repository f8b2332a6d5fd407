import math

import numpy as np
import pytest

from shared.sampling.common_filters import CommonFilters
from shared.sampling.factory import make_sampler
from shared.sampling.parameters import BANNED, SamplingParameters

LOGITS = np.array([0.0, 5.0, 4.0, 3.0, 2.0, 1.0, -1.0, -2.0], np.float32)
OPEN = {"seed": 1, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}


def left(logits=LOGITS, end_tokens=frozenset(), accepted=(), **changes):
    chain = CommonFilters(SamplingParameters(**OPEN | changes), len(logits), end_tokens)
    for token in accepted:
        chain.accept(token)
    ids, values = chain.apply(logits)
    return dict(zip(ids.tolist(), values.tolist(), strict=True))


def test_without_filters_every_token_stays():
    assert left() == dict(enumerate(LOGITS.tolist()))


def test_top_k_keeps_the_likeliest():
    assert set(left(top_k=3)) == {1, 2, 3}


def test_top_p_keeps_the_least_set_that_reaches_it():
    assert set(left(top_p=0.6)) == {1}


def test_min_p_drops_what_is_far_below_the_likeliest():
    assert set(left(min_p=0.3)) == {1, 2}


def test_temperature_divides():
    assert left(temperature=2)[1] == pytest.approx(2.5)


def test_typical_p_may_drop_the_likeliest():
    assert set(left(np.array([8.0, *[6.0] * 7], np.float32), typical_p=0.3)) != set(range(8))


def test_a_bias_adds_and_ids_out_of_range_are_left_out():
    assert left(logit_bias={0: 3.0, 4096: 9.0})[0] == pytest.approx(3.0)


def test_ignored_end_tokens_cannot_be_chosen():
    assert left(end_tokens=frozenset({1}), ignore_eos=True)[1] < -1e8


def test_repeated_tokens_are_penalised():
    assert left(accepted=[1], repeat_penalty=2.0)[1] == pytest.approx(2.5)


def test_presence_counts_once_and_frequency_each_time():
    assert left(accepted=[1, 1], presence_penalty=1.0)[1] == pytest.approx(4.0)
    assert left(accepted=[1, 1], frequency_penalty=1.0)[1] == pytest.approx(3.0)


def test_a_token_outside_the_window_is_forgotten():
    assert left(accepted=[1, 2, 3], repeat_penalty=2.0, repeat_last_n=2)[1] == pytest.approx(5.0)


def test_the_input_is_not_changed():
    before = LOGITS.copy()
    left(top_k=2, temperature=3)
    assert np.array_equal(before, LOGITS)


def test_rewinding_gives_the_state_of_that_history(vocabulary):
    parameters = SamplingParameters(seed=1, repeat_penalty=1.5, repeat_last_n=3)
    logits = np.random.default_rng(0).normal(size=vocabulary.n_tokens).astype(np.float32) * 4
    fresh = make_sampler(parameters, vocabulary, [5, 6, 7, 8])
    other = make_sampler(parameters, vocabulary, [1, 2])
    other.accept(3)
    other.rewind([5, 6, 7, 8])
    assert [other.choose(logits, t) for t in range(50)] == [fresh.choose(logits, t) for t in range(50)]


def test_temperature_zero_is_the_plain_argmax(vocabulary):
    sampler = make_sampler(SamplingParameters(seed=1, temperature=0), vocabulary, [])
    logits = np.zeros(vocabulary.n_tokens, np.float32)
    logits[[77, 99]] = 2.0
    assert sampler.choose(logits, 0) == 77


def test_temperature_zero_with_penalties_settles_ties_the_same_way(vocabulary):
    sampler = make_sampler(SamplingParameters(seed=1, temperature=0, repeat_penalty=1.1), vocabulary, [])
    logits = np.zeros(vocabulary.n_tokens, np.float32)
    logits[[77, 99]] = 2.0
    assert sampler.choose(logits, 0) == 77


@pytest.mark.parametrize(
    "samplers", [(), ("temperature",), ("top_k", "temperature"), ("min_p", "temperature")]
)
def test_a_filter_that_the_client_leaves_out_does_nothing(samplers, vocabulary):
    logits = np.random.default_rng(0).normal(size=vocabulary.n_tokens).astype(np.float32) * 4
    neutral = {"top_k": {"top_k": 0}, "top_p": {"top_p": 1}, "min_p": {"min_p": 0}}
    without = [values for name, values in neutral.items() if name not in samplers]
    temperature = 1.5 if "temperature" in samplers else 1
    open_ = SamplingParameters(
        seed=1, temperature=temperature, **{k: v for each in without for k, v in each.items()}
    )
    given = SamplingParameters(seed=1, temperature=1.5, samplers=samplers)
    ids, chances = make_sampler(given, vocabulary, []).distribution(logits, 0)
    truth = dict(zip(*make_sampler(open_, vocabulary, []).distribution(logits, 0), strict=True))
    assert dict(zip(ids, chances, strict=True)) == pytest.approx(truth)


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e6])
@pytest.mark.parametrize("bias", [BANNED, -BANNED])
@pytest.mark.parametrize("penalty", [1e-6, 1e6])
def test_no_allowed_extreme_makes_a_logit_infinite(temperature, bias, penalty):
    rest = left(
        accepted=[0, 1, 2] * 20,
        temperature=temperature,
        logit_bias={0: bias, 1: -bias},
        repeat_penalty=penalty,
        presence_penalty=-1e6,
        frequency_penalty=1e6,
        repeat_last_n=64,
    )
    assert rest
    assert all(map(math.isfinite, rest.values()))
