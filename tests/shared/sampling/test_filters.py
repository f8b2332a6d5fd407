import ctypes
import math

import llama_cpp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.sampling.filters import NativeFilters
from shared.sampling.parameters import BANNED, SamplingParameters
from shared.sampling.sampler import coupled_choice, every_token, likeliest

N = 500
END = frozenset({3, 17})
OPEN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
PENALTIES = {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2, "repeat_last_n": 20}
BIAS = {"logit_bias": {0: 5.0, 7: -5.0, 900: 3.3, 1 << 30: 1.0}, "ignore_eos": True}
SETTINGS = {
    "default": {},
    "open": OPEN,
    "temperature 0": {"temperature": 0, **PENALTIES},
    "temperature 0, open": OPEN | {"temperature": 0, **BIAS},
    "top-k": OPEN | {"top_k": 7},
    "a large top-k": {"top_k": 1500},
    "all by top-k": {"top_k": 1 << 30},
    "top-p": OPEN | {"top_p": 0.8},
    "min-p": OPEN | {"min_p": 0.1},
    "a tiny min-p": OPEN | {"min_p": 1e-300},
    "a full min-p": OPEN | {"min_p": 1.0},
    "top-p and min-p": OPEN | {"top_p": 0.9, "min_p": 0.3},
    "typical-p": OPEN | {"typical_p": 0.6},
    "typical-p and min-p": OPEN | {"typical_p": 0.6, "min_p": 0.3},
    "typical-p after top-k": {"typical_p": 0.6},
    "penalties": PENALTIES,
    "penalties, open": OPEN | PENALTIES,
    "penalties and min-p": OPEN | PENALTIES | {"min_p": 0.1},
    "bias": BIAS,
    "bias, open": OPEN | BIAS,
    "bias and penalties": BIAS | PENALTIES | {"temperature": 2.5},
    "rewards": {**PENALTIES, "repeat_penalty": 0.7, "presence_penalty": -3.0},
}


def filters(n_vocab=N, *, vocabulary=None, accepted=(), **changes):
    made = NativeFilters(SamplingParameters(**{"seed": 1, **changes}), n_vocab, END, vocabulary)
    for token in accepted:
        made.accept(token)
    return made


def as_dict(ids, logits):
    assert len(set(ids.tolist())) == len(ids)
    return dict(zip(ids.tolist(), logits.tolist(), strict=True))


def native(samplers, ids, logits, *, accepted=(), are_sorted=False):
    """(ids, logits) that a chain of llama.cpp leaves."""
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in samplers:
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    for token in accepted:
        llama_cpp.llama_sampler_accept(chain, token)
    candidates = np.zeros(len(ids), CANDIDATE)
    candidates["id"], candidates["logit"] = ids, logits
    pointer = ctypes.cast(candidates.ctypes.data, llama_cpp.llama_token_data_p)
    array = llama_cpp.llama_token_data_array(data=pointer, size=len(ids), selected=-1, sorted=are_sorted)
    llama_cpp.llama_sampler_apply(chain, ctypes.byref(array))
    address = ctypes.addressof(array.data.contents)
    buffer = (ctypes.c_byte * (array.size * CANDIDATE.itemsize)).from_address(address)
    left = np.frombuffer(buffer, CANDIDATE).copy()
    llama_cpp.llama_sampler_free(chain)
    return left["id"], left["logit"]


def among_all(sampler, logits, accepted=()):
    return as_dict(*native([sampler], range(len(logits)), logits, accepted=accepted))


def plain_chain(given, logits, accepted):
    """llama.cpp's samplers over every token. Top-k sorts equal logits by their ids, the lowest first."""
    n_vocab = len(logits)
    bias = {token: value for token, value in given.logit_bias.items() if token < n_vocab}
    bias |= dict.fromkeys(END, BANNED) if given.ignore_eos else {}
    pairs = [llama_cpp.llama_logit_bias(*pair) for pair in bias.items()]
    values = (llama_cpp.llama_logit_bias * len(pairs))(*pairs)
    first = [
        llama_cpp.llama_sampler_init_logit_bias(n_vocab, len(pairs), values),
        llama_cpp.llama_sampler_init_penalties(
            n_vocab,
            given.repeat_last_n,
            given.repeat_penalty,
            given.frequency_penalty,
            given.presence_penalty,
        ),
    ]
    ids, logits = native(first, range(n_vocab), logits, accepted=accepted)
    if given.top_k > 0:
        top = np.lexsort((ids, -logits))[: given.top_k]
        ids, logits = ids[top], logits[top]
    then = [
        llama_cpp.llama_sampler_init_typical(given.typical_p, 1),
        llama_cpp.llama_sampler_init_top_p(given.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(given.min_p, 1),
    ]
    if given.temperature > 0:
        then.append(llama_cpp.llama_sampler_init_temp(given.temperature))
    return native(then, ids, logits, are_sorted=given.top_k > 0)


def make_row(seed, n_vocab, kind):
    """A row of logits. `kind` decides how many are equal."""
    rng = np.random.default_rng(seed)
    row = rng.normal(size=n_vocab) * rng.choice([0.5, 3.0, 6.0])
    if kind == "tied":
        row = row.round(0)
    elif kind == "flat":
        row[:] = 1.5
    elif kind == "impossible":
        row[rng.random(n_vocab) < 0.9] = -1e9
    elif kind == "clear":
        row[rng.integers(n_vocab)] += 30
    return row.astype(np.float32)


@pytest.mark.parametrize("name", SETTINGS)
@given(
    st.integers(0, 1 << 40),
    st.sampled_from([24, 1000, 4096]),
    st.sampled_from(["usual", "usual", "tied", "flat", "impossible", "clear"]),
)
def test_candidates_and_choice_are_those_of_the_whole_chain(name, seed, n_vocab, kind):
    """At temperature 0 only the choice: filters that only remove other tokens are left out then."""
    parameters = SamplingParameters(seed=seed, **SETTINGS[name])
    accepted = np.random.default_rng(seed).integers(0, n_vocab, 30).tolist()
    ours = filters(n_vocab, accepted=accepted, **SETTINGS[name])
    for position in range(2):
        row = make_row(seed + position, n_vocab, kind)
        ids, logits = ours.apply(row, position)
        expected_ids, expected_logits = plain_chain(parameters, row, accepted)
        if parameters.is_greedy:
            assert likeliest(ids, logits) == likeliest(expected_ids, expected_logits)
            continue
        assert set(ids) == set(expected_ids)
        if len(ids) > 1:  # the logit of the only one says nothing
            assert as_dict(ids, logits) == as_dict(expected_ids, expected_logits)
        chosen = coupled_choice(ids, logits, seed, position)
        assert chosen == coupled_choice(expected_ids, expected_logits, seed, position)


@given(st.integers(0, 1 << 40))
def test_without_ties_llama_cpps_own_top_k_leaves_the_same(seed):
    row = make_row(seed, 4096, "usual")
    left = among_all(llama_cpp.llama_sampler_init_top_k(40), row)
    assert as_dict(*filters(4096, **OPEN | {"top_k": 40}).apply(row, 0)) == left


def test_where_nothing_is_removed_the_ids_are_the_shared_ones():
    assert filters(4096, **OPEN).apply(np.zeros(4096, np.float32), 0)[0] is every_token(4096)


NO_NUMBERS = SETTINGS | {"top-n-sigma": {"top_n_sigma": 1.0}, "xtc": {"xtc_probability": 1.0}}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_logits_that_are_no_numbers_leave_candidates(name):
    assert len(filters(4096, **NO_NUMBERS[name]).apply(np.full(4096, np.nan, np.float32), 0)[0]) > 0


def test_the_input_is_not_changed():
    logits = row()
    filters(**BIAS, **PENALTIES, top_k=2, temperature=3, accepted=[1, 2]).apply(logits, 0)
    assert np.array_equal(logits, row())


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e6])
@pytest.mark.parametrize("bias", [BANNED, -BANNED])
@pytest.mark.parametrize("penalty", [1e-6, 1e6])
def test_no_allowed_extreme_makes_a_logit_infinite(temperature, bias, penalty):
    extreme = filters(
        **OPEN
        | {"temperature": temperature, "logit_bias": {0: bias, 1: -bias}, "repeat_penalty": penalty}
        | {"presence_penalty": -1e6, "frequency_penalty": 1e6, "repeat_last_n": 64},
        accepted=[0, 1, 2] * 20,
    )
    ids, logits = extreme.apply(row(), 0)
    assert len(ids)
    assert all(map(math.isfinite, logits.tolist()))


def row(seed=0, scale=3.0):
    return (np.random.default_rng(seed).normal(size=N) * scale).astype(np.float32)


# Any order, and the samplers that are off by default


def test_the_order_is_what_the_client_says():
    given = {**OPEN, "temperature": 3.0, "top_p": 0.5}
    hot_first = as_dict(*filters(**given, samplers=("temperature", "top_p")).apply(row(), 0))
    hot_last = as_dict(*filters(**given, samplers=("top_p", "temperature")).apply(row(), 0))
    temperature = llama_cpp.llama_sampler_init_temp(3.0)
    chain = native([temperature, llama_cpp.llama_sampler_init_top_p(0.5, 1)], range(N), row())
    assert hot_first == pytest.approx(as_dict(*chain), rel=1e-6)
    assert len(hot_last) < len(hot_first)


def test_what_the_client_leaves_out_does_nothing():
    ids, logits = filters(top_k=1, temperature=5.0, samplers=("min_p",), min_p=1e-9).apply(row(), 0)
    assert as_dict(ids, logits) == pytest.approx(
        {i: x for i, x in enumerate(row().tolist()) if i in set(ids)}
    )
    assert len(ids) > 1


def test_top_n_sigma_is_llama_cpps():
    left = as_dict(*filters(**OPEN, top_n_sigma=1.5).apply(row(), 0))
    expected = among_all(llama_cpp.llama_sampler_init_top_n_sigma(1.5), row())
    assert left == pytest.approx({i: x for i, x in expected.items() if math.isfinite(x)})


def test_dynamic_temperature_is_llama_cpps():
    given = OPEN | {"temperature": 1.2, "dynatemp_range": 0.7, "dynatemp_exponent": 1.5}
    expected = among_all(llama_cpp.llama_sampler_init_temp_ext(1.2, 0.7, 1.5), row())
    assert as_dict(*filters(**given).apply(row(), 0)) == pytest.approx(expected, rel=1e-5)


HISTORY = [1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 8, 2, 3, 4, 5]


def test_dry_is_llama_cpps():
    given = {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 100}
    chain = filters(**OPEN, **given, accepted=HISTORY)
    dry = llama_cpp.llama_sampler_init_dry(None, 0.8, 1.75, 2, 100, (ctypes.c_char_p * 0)(), 0)
    expected = among_all(dry, row(), HISTORY)
    assert as_dict(*chain.apply(row(), 0)) == pytest.approx(expected, rel=1e-6)
    assert expected[9] < row()[9]
    assert expected[8] < row()[8]


def test_dry_stops_at_breakers(vocabulary):
    text = "one two three\none two three"
    history = vocabulary.tokenize(text, add_special=False, parse_special=False)
    (line_end,) = vocabulary.tokenize("\n", add_special=False, parse_special=False)
    flat = np.zeros(vocabulary.n_tokens, np.float32)

    def penalty(breakers):
        chain = filters(
            vocabulary.n_tokens,
            vocabulary=vocabulary,
            accepted=[*history, line_end, *history[:-1]],
            **OPEN,
            dry_multiplier=1.0,
            dry_sequence_breakers=breakers,
        )
        return as_dict(*chain.apply(flat, 0))[history[-1]]

    assert penalty(("\n",)) > penalty(())


def test_penalties_stay_finite():
    chain = filters(**OPEN, dry_multiplier=1e6, dry_base=1e6, dry_allowed_length=0, accepted=[7] * 100)
    ids, logits = chain.apply(row(), 0)
    assert np.isfinite(logits).all()
    assert logits[ids == 7] < -1e20


@pytest.mark.parametrize("given", [{"temperature": 0.8, "dynatemp_range": 0.8, "dynatemp_exponent": 1e6}, {}])
def test_a_temperature_that_comes_to_zero_leaves_the_likeliest(given):
    chain = filters(
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
    ids, _ = filters(**OPEN, xtc_probability=1.0, xtc_threshold=0.15).apply(logits, 0)
    assert not {10, 20} & set(ids.tolist())
    assert 30 in ids.tolist()


@pytest.mark.parametrize("given", [{"xtc_threshold": 0.6}, {"xtc_probability": 0.0}, {"xtc_threshold": 0.5}])
def test_xtc_takes_nothing_away_where_one_or_none_reaches_the_threshold(given):
    logits = row(scale=0.1)
    ids, _ = filters(**OPEN, **{"xtc_probability": 1.0, **given}).apply(logits, 0)
    assert len(ids) == N


def test_xtc_draws_with_its_probability_and_the_same_for_everyone():
    logits = np.full(N, -50.0, np.float32)
    logits[[10, 20]] = 3.0

    def draws():
        chain = filters(**OPEN, xtc_probability=0.3, xtc_threshold=0.1)
        return [10 not in chain.apply(logits, position)[0] for position in range(4000)]

    first = draws()
    assert 0.27 < sum(first) / 4000 < 0.33
    assert first == draws()
