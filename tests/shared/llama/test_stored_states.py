"""States in host memory bring back what was there, in the same slot and in another."""

import numpy as np
import pytest

from tests.shared.llama.conftest import read

pytestmark = pytest.mark.parametrize("three_slots", ["qwen35", "jamba", "gemma3", "lfm2"], indirect=True)

TEXT = [(7 * i) % 4000 for i in range(150)]
OTHER = [(11 * i) % 4000 for i in range(100)]


def test_a_slot_goes_back_to_a_state_long_ago(three_slots):
    read(three_slots, 0, 0, TEXT[:50])
    three_slots.store(0, 7)
    expected = read(three_slots, 0, 50, TEXT[50:60])
    read(three_slots, 0, 60, TEXT[60:])
    read(three_slots, 1, 0, OTHER)
    three_slots.load(0, 7)
    assert np.abs(read(three_slots, 0, 50, TEXT[50:60]) - expected).max() < 0.01


def test_another_slot_goes_on_from_a_state(three_slots):
    read(three_slots, 0, 0, TEXT[:50])
    three_slots.store(0, 7)
    expected = read(three_slots, 0, 50, TEXT[50:])
    three_slots.copy(0, 1, 50)
    three_slots.load(1, 7)
    assert np.abs(read(three_slots, 1, 50, TEXT[50:]) - expected).max() < 0.01


def test_a_state_that_was_forgotten_cannot_be_loaded(three_slots):
    read(three_slots, 0, 0, TEXT[:50])
    three_slots.store(0, 7)
    three_slots.forget(7)
    with pytest.raises(KeyError):
        three_slots.load(0, 7)
