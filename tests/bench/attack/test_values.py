import json
import random

import pytest

from bench.attack.values import ELEMENTS, Raw, encode, fitting, large, large_list, small


def test_raw_text_is_written_as_it_is():
    assert encode({"a": [Raw("NaN"), "x"], "b": Raw("1")}) == b'{"a":[NaN,"x"],"b":1}'


@pytest.mark.parametrize("make", [small, lambda rng: fitting(rng, {"text", "list", "object", "number"})])
def test_small_values_can_be_encoded_and_are_the_same_for_a_seed(make):
    first, second = ([encode(make(random.Random(seed))) for seed in range(300)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 50


@pytest.mark.parametrize("element", ELEMENTS)
def test_large_lists_are_json_of_about_that_size(element):
    _, value = large_list(element, 10_000)
    assert len(json.loads(value.text)) > 10
    assert 9_000 < len(value.text) < 11_000


def test_large_values_have_about_the_size_that_was_asked_for():
    sizes = [len(large(random.Random(seed), 10_000)[1].text.encode()) for seed in range(100)]
    assert min(sizes) > 5_000
    assert max(sizes) < 20_000
