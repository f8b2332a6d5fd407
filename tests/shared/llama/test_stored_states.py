"""States in host memory restore a slot's content, in the same slot and in another."""

import numpy as np
import pytest

from shared.cache_edits import Snapshot
from tests.shared.llama.conftest import read

of_states = pytest.mark.parametrize("three_slots", ["qwen35", "jamba", "gemma3", "qwen3next"], indirect=True)
of_texts = pytest.mark.parametrize("three_slots", ["llama", "deepseek2"], indirect=True)
of_any_texts = pytest.mark.parametrize(
    "three_slots", ["llama", "gemma3", "gpt-oss", "qwen35", "jamba", "lfm2", "mamba2"], indirect=True
)

TEXT = [(7 * i) % 4000 for i in range(150)]
OTHER = [(11 * i) % 4000 for i in range(100)]
STATE = Snapshot("state", 7, 50)


def text(n_tokens):
    return Snapshot("text", 7, n_tokens)


@of_states
def test_a_slot_goes_back_to_a_state_long_ago(three_slots):
    read(three_slots, 0, 0, TEXT[:50])
    three_slots.store(0, STATE)
    expected = read(three_slots, 0, 50, TEXT[50:60])
    read(three_slots, 0, 60, TEXT[60:])
    read(three_slots, 1, 0, OTHER)
    three_slots.restore(0, STATE, 50)
    assert np.abs(read(three_slots, 0, 50, TEXT[50:60]) - expected).max() < 0.01


@of_states
def test_another_slot_goes_on_from_a_state(three_slots):
    read(three_slots, 0, 0, TEXT[:50])
    three_slots.store(0, STATE)
    expected = read(three_slots, 0, 50, TEXT[50:])
    three_slots.copy(0, 1, 50)
    three_slots.restore(1, STATE, 50)
    assert np.abs(read(three_slots, 1, 50, TEXT[50:]) - expected).max() < 0.01


@of_states
def test_a_state_that_was_forgotten_cannot_be_loaded(three_slots):
    read(three_slots, 0, 0, TEXT[:50])
    three_slots.store(0, STATE)
    three_slots.forget(7)
    with pytest.raises(KeyError):
        three_slots.restore(0, STATE, 50)


@of_any_texts
def test_a_text_goes_on_in_another_slot(three_slots):
    read(three_slots, 0, 0, TEXT[:100])
    three_slots.store(0, text(100))
    expected = read(three_slots, 0, 100, TEXT[100:])
    three_slots.trim(0, 0)
    read(three_slots, 1, 0, OTHER)
    three_slots.restore(2, text(100), 100)
    assert np.abs(read(three_slots, 2, 100, TEXT[100:]) - expected).max() < 0.01


@of_texts
def test_the_beginning_of_a_text_goes_on_otherwise(three_slots):
    expected = read(three_slots, 0, 0, [*TEXT[:60], *OTHER])
    read(three_slots, 1, 0, TEXT)
    three_slots.store(1, text(150))
    three_slots.trim(1, 0)
    three_slots.restore(1, text(150), 60)
    assert np.abs(read(three_slots, 1, 60, OTHER) - expected).max() < 0.01


@of_texts
def test_a_text_fits_into_cells_here_and_there(three_slots):
    for n in range(20):
        read(three_slots, 0, 10 * n, OTHER[:10])
        read(three_slots, 1, 10 * n, TEXT[10 * n : 10 * n + 10] or OTHER[:10])
    three_slots.store(1, text(200))
    expected = read(three_slots, 1, 200, TEXT[:10])
    three_slots.trim(1, 0)
    three_slots.restore(2, text(200), 200)
    assert np.abs(read(three_slots, 2, 200, TEXT[:10]) - expected).max() < 0.01


@of_texts
def test_a_text_is_loaded_only_into_an_empty_slot(three_slots):
    read(three_slots, 0, 0, TEXT)
    three_slots.store(0, text(150))
    with pytest.raises(AssertionError, match="slot 0 holds 150 tokens"):
        three_slots.restore(0, text(150), 10)


@of_texts
def test_when_all_is_cleared_nothing_can_be_loaded(three_slots):
    read(three_slots, 0, 0, TEXT)
    three_slots.store(0, text(150))
    three_slots.clear()
    read(three_slots, 0, 0, OTHER)
    with pytest.raises(KeyError):
        three_slots.restore(1, text(150), 10)


@of_any_texts
def test_the_bytes_of_a_text_are_all_that_another_needs_of_it(three_slots):
    """After a restart the lent memory is gone."""
    read(three_slots, 0, 0, TEXT[:100])
    three_slots.store(0, text(100))
    expected = read(three_slots, 0, 100, TEXT[100:])
    lent = three_slots.lend(7)
    three_slots.forget(7)
    assert three_slots.lend(7) is None
    three_slots.reserve(8, len(lent))[:] = lent
    for key in (7, 8):
        three_slots.take_back(key)
    read(three_slots, 1, 0, OTHER)
    three_slots.restore(2, Snapshot("text", 8, 100), 100)
    assert np.abs(read(three_slots, 2, 100, TEXT[100:]) - expected).max() < 0.01
