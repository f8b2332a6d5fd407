"""The chain with its short cuts leaves what llama.cpp's whole chain leaves of the whole vocabulary."""

import ctypes

import llama_cpp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.sampling.common_filters import CommonFilters
from shared.sampling.coupled_choice import coupled_choice, every_token
from shared.sampling.parameters import BANNED, SamplingParameters

CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
END_TOKENS = frozenset({3, 17})
PENALTIES = {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2, "repeat_last_n": 20}
BIAS = {"logit_bias": {0: 5.0, 7: -5.0, 900: 3.3, 1 << 30: 1.0}, "ignore_eos": True}
OPEN = {"top_k": 0, "top_p": 1, "min_p": 0}
SETTINGS = {
    "default": {},
    "open": OPEN,
    "temperature 0": {"temperature": 0, **PENALTIES},
    "temperature 0, open": {"temperature": 0, **OPEN, **BIAS},
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


class PlainChain:
    """llama.cpp's samplers over every token. Top-k is a sort in which the lowest id goes first."""

    def __init__(self, parameters, n_vocab):
        self._before = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        self._after = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        self._top_k = parameters.top_k
        bias = {token: value for token, value in parameters.logit_bias.items() if token < n_vocab}
        bias |= dict.fromkeys(END_TOKENS, BANNED) if parameters.ignore_eos else {}
        if bias:
            pairs = [llama_cpp.llama_logit_bias(*pair) for pair in bias.items()]
            native = (llama_cpp.llama_logit_bias * len(pairs))(*pairs)
            self._add(self._before, llama_cpp.llama_sampler_init_logit_bias(n_vocab, len(pairs), native))
        penalties = llama_cpp.llama_sampler_init_penalties(
            n_vocab,
            parameters.repeat_last_n,
            parameters.repeat_penalty,
            parameters.frequency_penalty,
            parameters.presence_penalty,
        )
        self._add(self._before, penalties)
        self._add(self._after, llama_cpp.llama_sampler_init_typical(parameters.typical_p, 1))
        self._add(self._after, llama_cpp.llama_sampler_init_top_p(parameters.top_p, 1))
        self._add(self._after, llama_cpp.llama_sampler_init_min_p(parameters.min_p, 1))
        if parameters.temperature > 0:
            self._add(self._after, llama_cpp.llama_sampler_init_temp(parameters.temperature))

    @staticmethod
    def _add(chain, sampler):
        llama_cpp.llama_sampler_chain_add(chain, sampler)

    def accept(self, token):
        llama_cpp.llama_sampler_accept(self._before, token)

    def apply(self, logits):
        candidates = np.zeros(len(logits), CANDIDATE)
        candidates["id"] = np.arange(len(logits))
        candidates["logit"] = logits
        candidates = self._run(self._before, candidates, are_sorted=False)
        if self._top_k > 0:
            candidates = candidates[np.lexsort((candidates["id"], -candidates["logit"]))[: self._top_k]]
        left = self._run(self._after, candidates, are_sorted=self._top_k > 0)
        return left["id"], left["logit"]

    def close(self):
        llama_cpp.llama_sampler_free(self._before)
        llama_cpp.llama_sampler_free(self._after)

    @staticmethod
    def _run(chain, candidates, *, are_sorted):
        candidates = candidates.copy()
        pointer = ctypes.cast(candidates.ctypes.data, llama_cpp.llama_token_data_p)
        array = llama_cpp.llama_token_data_array(
            data=pointer, size=len(candidates), selected=-1, sorted=are_sorted
        )
        llama_cpp.llama_sampler_apply(chain, ctypes.byref(array))
        assert ctypes.addressof(array.data.contents) == candidates.ctypes.data
        return candidates[: array.size]


def make_row(seed, n_vocab, kind):
    """Logits with as many ties as `kind` says."""
    rng = np.random.default_rng(seed)
    row = rng.normal(size=n_vocab) * rng.choice([0.5, 3.0, 6.0])
    if kind == "tied":
        row = row.round(0)
    elif kind == "flat":
        row[:] = 1.5
    elif kind == "impossible":
        row[rng.random(n_vocab) < 0.9] = -1e9
    return row.astype(np.float32)


def as_dict(ids, logits):
    assert len(set(ids.tolist())) == len(ids)
    return dict(zip(ids.tolist(), logits.tolist(), strict=True))


@pytest.mark.parametrize("name", SETTINGS)
@given(
    st.integers(0, 1 << 40),
    st.sampled_from([24, 1000, 4096]),
    st.sampled_from(["usual", "usual", "tied", "flat", "impossible"]),
)
@settings(max_examples=25)
def test_candidates_and_choice_are_those_of_the_whole_chain(name, seed, n_vocab, kind):
    given_settings = SETTINGS[name]
    parameters = SamplingParameters(seed=seed, **given_settings)
    chain, plain = CommonFilters(parameters, n_vocab, END_TOKENS), PlainChain(parameters, n_vocab)
    for token in np.random.default_rng(seed).integers(0, n_vocab, 30).tolist():
        chain.accept(token)
        plain.accept(token)
    for position in range(2):
        row = make_row(seed + position, n_vocab, kind)
        ids, logits = chain.apply(row)
        expected_ids, expected_logits = plain.apply(row)
        assert as_dict(ids, logits) == as_dict(expected_ids, expected_logits)
        chosen = coupled_choice(ids, logits, parameters.seed, position)
        assert chosen == coupled_choice(expected_ids, expected_logits, parameters.seed, position)
    plain.close()


@given(st.integers(0, 1 << 40))
@settings(max_examples=20)
def test_without_ties_llama_cpps_own_top_k_leaves_the_same(seed):
    row = make_row(seed, 4096, "usual")
    candidates = np.zeros(4096, CANDIDATE)
    candidates["id"], candidates["logit"] = np.arange(4096), row
    native = llama_cpp.llama_sampler_init_top_k(40)
    left = PlainChain._run(native, candidates, are_sorted=False)
    llama_cpp.llama_sampler_free(native)
    ours = CommonFilters(SamplingParameters(seed=1, temperature=1, **OPEN | {"top_k": 40}), 4096, END_TOKENS)
    assert as_dict(*ours.apply(row)) == as_dict(left["id"], left["logit"])


def test_at_the_kth_place_the_lowest_ids_stay():
    row = np.zeros(4096, np.float32)
    row[[4000, 9, 2000]] = 1
    chain = CommonFilters(SamplingParameters(seed=1, **OPEN | {"top_k": 5}), 4096, END_TOKENS)
    assert sorted(chain.apply(row)[0].tolist()) == [0, 1, 9, 2000, 4000]


def test_where_nothing_is_removed_the_ids_are_the_shared_ones():
    chain = CommonFilters(SamplingParameters(seed=1, **OPEN), 4096, END_TOKENS)
    assert chain.apply(np.zeros(4096, np.float32))[0] is every_token(4096)


@pytest.mark.parametrize("name", SETTINGS)
def test_logits_that_are_no_numbers_leave_candidates(name):
    chain = CommonFilters(SamplingParameters(seed=1, **SETTINGS[name]), 4096, END_TOKENS)
    assert len(chain.apply(np.full(4096, np.nan, np.float32))[0]) > 0
