"""A recurrent state is saved and restored without a difference, beside other busy slots."""

import numpy as np
import pytest

from shared.cache_edits import Snapshot
from tests.shared.llama.conftest import read

pytestmark = pytest.mark.parametrize("three_slots", ["jamba", "mamba2", "qwen3next"], indirect=True)

TEXT = [(7 * i) % 4000 for i in range(60)]
OTHER = [(11 * i) % 4000 for i in range(60)]
KEPT = Snapshot("device", 0, 50)


def test_a_rejected_draft_leaves_no_trace(three_slots):
    read(three_slots, 0, 0, TEXT[:50])
    three_slots.store(0, KEPT)
    expected = read(three_slots, 0, 50, TEXT[50:55])
    three_slots.restore(0, KEPT, 50)
    read(three_slots, 0, 50, OTHER[:3])
    read(three_slots, 1, 0, OTHER)
    three_slots.restore(0, KEPT, 50)
    assert np.abs(read(three_slots, 0, 50, TEXT[50:55]) - expected).max() < 1e-4


def test_a_state_can_be_saved_again_further_on(three_slots):
    read(three_slots, 0, 0, TEXT[:20])
    three_slots.store(0, KEPT)
    read(three_slots, 0, 20, TEXT[20:50])
    three_slots.store(0, KEPT)
    expected = read(three_slots, 0, 50, TEXT[50:])
    three_slots.restore(0, KEPT, 50)
    assert np.abs(read(three_slots, 0, 50, TEXT[50:]) - expected).max() < 1e-4


def test_another_slot_goes_on_from_a_saved_state(three_slots):
    read(three_slots, 0, 0, TEXT[:50])
    three_slots.store(0, KEPT)
    expected = read(three_slots, 0, 50, TEXT[50:])
    three_slots.restore(1, KEPT, 50)
    assert np.abs(read(three_slots, 1, 50, TEXT[50:]) - expected).max() < 1e-4


def test_a_slot_that_was_emptied_has_no_saved_state(three_slots):
    read(three_slots, 0, 0, TEXT)
    three_slots.store(0, KEPT)
    three_slots.trim(0, 0)
    with pytest.raises(AssertionError, match="no state"):
        three_slots.restore(0, KEPT, 50)
