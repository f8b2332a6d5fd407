import llama_cpp
import numpy as np
import pytest

from shared.sampling.native_chain import NativeChain

IDS = np.array([9, 4, 7], np.int32)
LOGITS = np.array([3.0, 2.0, 1.0], np.float32)


def test_more_candidates_than_ever_before_find_room():
    chain = NativeChain([llama_cpp.llama_sampler_init_temp(2.0)])
    chain.apply(IDS, LOGITS, are_sorted=True)
    many = np.arange(5000, dtype=np.int32)
    ids, logits = chain.apply(many, many.astype(np.float32), are_sorted=False)
    assert np.array_equal(ids, many)
    assert np.array_equal(logits, many / np.float32(2))
    assert chain.apply(IDS, LOGITS, are_sorted=True)[0].tolist() == IDS.tolist()


def test_no_candidates_are_our_own_mistake():
    with pytest.raises(AssertionError, match="if there are no candidates"):
        NativeChain([]).apply(IDS[:0], LOGITS[:0], are_sorted=True)
