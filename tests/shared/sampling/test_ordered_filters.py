"""All samplers in any order, against llama.cpp's own where it has them."""

import ctypes

import llama_cpp
import numpy as np
import pytest

from shared.sampling.common_filters import CommonFilters
from shared.sampling.ordered_filters import OrderedFilters
from shared.sampling.parameters import SamplingParameters

N = 500
END = frozenset({3})
OPEN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
PENALTIES = {"repeat_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.1, "repeat_last_n": 20}


def row(seed=0, scale=3.0):
    return (np.random.default_rng(seed).normal(size=N) * scale).astype(np.float32)


def ordered(vocabulary=None, **given):
    return OrderedFilters(SamplingParameters(**{"seed": 1, **given}), N, END, vocabulary)


def as_dict(ids, logits):
    return {int(i): float(x) for i, x in zip(ids, logits, strict=True) if np.isfinite(x)}


def native(samplers, logits, accepted=()):
    """What llama.cpp's own chain leaves."""
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in samplers:
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    for token in accepted:
        llama_cpp.llama_sampler_accept(chain, token)
    candidates = np.zeros(len(logits), CANDIDATE)
    candidates["id"], candidates["logit"] = np.arange(len(logits)), logits
    pointer = ctypes.cast(candidates.ctypes.data, llama_cpp.llama_token_data_p)
    array = llama_cpp.llama_token_data_array(data=pointer, size=len(candidates), selected=-1, sorted=False)
    llama_cpp.llama_sampler_apply(chain, ctypes.byref(array))
    address = ctypes.addressof(array.data.contents)
    buffer = (ctypes.c_byte * (array.size * CANDIDATE.itemsize)).from_address(address)
    left = np.frombuffer(buffer, CANDIDATE).copy()
    llama_cpp.llama_sampler_free(chain)
    return as_dict(left["id"], left["logit"])


@pytest.mark.parametrize(
    "given",
    [
        {},
        OPEN,
        {"typical_p": 0.7},
        {**OPEN, "top_p": 0.8, "temperature": 1.7},
        PENALTIES,
        {"logit_bias": {5: 9.0}, "ignore_eos": True},
    ],
)
def test_in_the_usual_order_it_leaves_what_the_common_chain_leaves(given):
    chains = CommonFilters(SamplingParameters(seed=1, **given), N, END), ordered(**given)
    for chain in chains:
        for token in (7, 8, 7, 9):
            chain.accept(token)
    common, general = (as_dict(*chain.apply(row(), 0)) for chain in chains)
    assert common == pytest.approx(general, rel=1e-6)


def test_the_order_is_what_the_client_says():
    given = {**OPEN, "temperature": 3.0, "top_p": 0.5}
    hot_first = as_dict(*ordered(**given, samplers=("temperature", "top_p")).apply(row(), 0))
    hot_last = as_dict(*ordered(**given, samplers=("top_p", "temperature")).apply(row(), 0))
    temperature = llama_cpp.llama_sampler_init_temp(3.0)
    assert hot_first == pytest.approx(
        native([temperature, llama_cpp.llama_sampler_init_top_p(0.5, 1)], row()), rel=1e-6
    )
    assert len(hot_last) < len(hot_first)


def test_what_the_client_leaves_out_does_nothing():
    ids, logits = ordered(top_k=1, temperature=5.0, samplers=("min_p",), min_p=1e-9).apply(row(), 0)
    assert as_dict(ids, logits) == pytest.approx(
        {i: x for i, x in enumerate(row().tolist()) if i in set(ids)}
    )
    assert len(ids) > 1


def test_top_n_sigma_is_llama_cpps():
    left = as_dict(*ordered(**OPEN, top_n_sigma=1.5).apply(row(), 0))
    assert left == pytest.approx(native([llama_cpp.llama_sampler_init_top_n_sigma(1.5)], row()))


def test_dynamic_temperature_is_llama_cpps():
    given = OPEN | {"temperature": 1.2, "dynatemp_range": 0.7, "dynatemp_exponent": 1.5}
    expected = native([llama_cpp.llama_sampler_init_temp_ext(1.2, 0.7, 1.5)], row())
    assert as_dict(*ordered(**given).apply(row(), 0)) == pytest.approx(expected, rel=1e-5)


HISTORY = [1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 8, 2, 3, 4, 5]


def test_dry_is_llama_cpps():
    chain = ordered(**OPEN, dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=100)
    for token in HISTORY:
        chain.accept(token)
    dry = llama_cpp.llama_sampler_init_dry(None, 0.8, 1.75, 2, 100, (ctypes.c_char_p * 0)(), 0)
    expected = native([dry], row(), HISTORY)
    assert as_dict(*chain.apply(row(), 0)) == pytest.approx(expected, rel=1e-6)
    assert expected[9] < row()[9]
    assert expected[8] < row()[8]


def test_dry_stops_at_breakers(vocabulary):
    text = "one two three\none two three"
    history = vocabulary.tokenize(text, add_special=False, parse_special=False)
    (line_end,) = vocabulary.tokenize("\n", add_special=False, parse_special=False)
    given = SamplingParameters(seed=1, **OPEN, dry_multiplier=1.0)
    flat = np.zeros(vocabulary.n_tokens, np.float32)

    def penalty(breakers):
        parameters = given.model_copy(update={"dry_sequence_breakers": breakers})
        chain = OrderedFilters(parameters, vocabulary.n_tokens, frozenset(), vocabulary)
        for token in [*history, line_end, *history[:-1]]:
            chain.accept(token)
        return as_dict(*chain.apply(flat, 0))[history[-1]]

    assert penalty(("\n",)) > penalty(())


def test_penalties_stay_finite():
    chain = ordered(**OPEN, dry_multiplier=1e6, dry_base=1e6, dry_allowed_length=0)
    for _ in range(100):
        chain.accept(7)
    ids, logits = chain.apply(row(), 0)
    assert np.isfinite(logits).all()
    assert logits[ids == 7] < -1e20


@pytest.mark.parametrize("given", [{"temperature": 0.8, "dynatemp_range": 0.8, "dynatemp_exponent": 1e6}, {}])
def test_a_temperature_that_comes_to_zero_leaves_the_likeliest(given):
    chain = ordered(
        **{**OPEN, "dynatemp_range": 1.0, **given}, top_n_sigma=1.0, samplers=("temperature", "top_n_sigma")
    )
    logits = row()
    logits[7] = 1e6
    ids, left = chain.apply(logits, 0)
    assert 7 in ids
    assert np.isfinite(left).all()


def test_xtc_leaves_the_least_likely_of_those_that_reach_the_threshold():
    logits = np.full(N, -50.0, np.float32)
    logits[[10, 20, 30]] = [3.0, 2.5, 2.0]
    ids, _ = ordered(**OPEN, xtc_probability=1.0, xtc_threshold=0.15).apply(logits, 0)
    assert not {10, 20} & set(ids.tolist())
    assert 30 in ids.tolist()


@pytest.mark.parametrize("given", [{"xtc_threshold": 0.6}, {"xtc_probability": 0.0}, {"xtc_threshold": 0.5}])
def test_xtc_takes_nothing_away_where_one_or_none_reaches_the_threshold(given):
    logits = row(scale=0.1)
    ids, _ = ordered(**OPEN, **{"xtc_probability": 1.0, **given}).apply(logits, 0)
    assert len(ids) == N


def test_xtc_draws_with_its_probability_and_the_same_for_everyone():
    logits = np.full(N, -50.0, np.float32)
    logits[[10, 20]] = 3.0

    def draws():
        chain = ordered(**OPEN, xtc_probability=0.3, xtc_threshold=0.1)
        return [10 not in chain.apply(logits, position)[0] for position in range(4000)]

    first = draws()
    assert 0.27 < sum(first) / 4000 < 0.33
    assert first == draws()


def test_it_can_begin_with_less_than_all_tokens():
    ids, _ = ordered(top_k=3).apply(row(), 0, np.array([5, 6, 7, 8, 9], np.int32))
    assert set(ids.tolist()) <= {5, 6, 7, 8, 9}


def test_a_reset_forgets_all_tokens():
    chain = ordered(**OPEN, **PENALTIES)
    chain.accept(7)
    chain.reset()
    assert as_dict(*chain.apply(row(), 0)) == pytest.approx(dict(enumerate(row().tolist())))
