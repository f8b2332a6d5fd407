import llama_cpp
import numpy as np
import pytest

from shared.sampling.native_chain import NativeChain

IDS = np.array([9, 4, 7], np.int32)
LOGITS = np.array([3.0, 2.0, 1.0], np.float32)


def test_a_chain_of_nothing_leaves_everything():
    ids, logits = NativeChain([]).apply(IDS, LOGITS, are_sorted=True)
    assert (ids.tolist(), logits.tolist()) == (IDS.tolist(), LOGITS.tolist())


def test_samplers_narrow_and_change():
    chain = NativeChain([llama_cpp.llama_sampler_init_top_k(2), llama_cpp.llama_sampler_init_temp(2.0)])
    ids, logits = chain.apply(IDS, LOGITS, are_sorted=True)
    assert (ids.tolist(), logits.tolist()) == ([9, 4], [1.5, 1.0])


def test_more_candidates_than_ever_before_find_room():
    chain = NativeChain([llama_cpp.llama_sampler_init_temp(2.0)])
    chain.apply(IDS, LOGITS, are_sorted=True)
    many = np.arange(5000, dtype=np.int32)
    ids, logits = chain.apply(many, many.astype(np.float32), are_sorted=False)
    assert np.array_equal(ids, many)
    assert np.array_equal(logits, many / np.float32(2))
    assert chain.apply(IDS, LOGITS, are_sorted=True)[0].tolist() == IDS.tolist()


def test_the_input_is_not_changed():
    before = LOGITS.copy()
    NativeChain([llama_cpp.llama_sampler_init_temp(2.0)]).apply(IDS, LOGITS, are_sorted=True)
    assert np.array_equal(LOGITS, before)


def test_no_candidates_are_our_own_mistake():
    with pytest.raises(AssertionError, match="without candidates"):
        NativeChain([]).apply(IDS[:0], LOGITS[:0], are_sorted=True)
