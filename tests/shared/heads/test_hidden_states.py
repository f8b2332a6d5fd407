import numpy as np

from shared.heads import hidden_states as module
from shared.heads.hidden_states import HiddenStates


def recorded(tokens, start=0, slot=0, kept=None):
    kept = kept or HiddenStates(2, 2)
    kept.record(slot, start, tokens, np.array([[token, start + i] for i, token in enumerate(tokens)]))
    return kept


def test_the_state_behind_each_token_but_the_last_is_known():
    kept = recorded([5, 6, 7])
    assert kept.first(0, [5, 6, 7, 8]) == 0
    assert list(kept.state(0, 1)) == [6, 1]


def test_rejected_tokens_are_overwritten():
    kept = recorded([9], 1, kept=recorded([5, 6, 7]))
    assert kept.first(0, [5, 9, 1]) == 0
    assert kept.first(0, [5, 6, 7, 8]) == 3


def test_of_another_text_nothing_is_known():
    assert recorded([5, 6, 7]).first(0, [5, 1, 7, 8]) == 3
    assert recorded([5, 6, 7]).first(1, [5, 6, 7, 8]) == 3


def test_after_a_gap_only_what_follows_it_is_known():
    kept = recorded([8, 9], 5, kept=recorded([5, 6]))
    assert kept.first(0, [5, 6, 1, 1, 1, 8, 9, 2]) == 5


def test_where_tokens_are_missing_nothing_is_known():
    assert recorded([5, 6]).first(0, [5, 6, 7, 8]) == 3


def test_a_text_that_begins_again_replaces_the_first_one():
    kept = recorded([1, 2], kept=recorded([8, 9], 5))
    assert kept.first(0, [1, 2, 3]) == 0


def test_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(module, "_MAX_STATES", 3)
    kept = recorded([1, 2, 3, 4, 5], kept=HiddenStates(1, 2))
    assert kept.first(0, [1, 2, 3, 4, 5, 6]) == 2
    assert list(kept.state(0, 4)) == [5, 4]


def test_a_slot_takes_a_bounded_amount_of_memory():
    assert HiddenStates(1, 1 << 20).n_bytes <= 64 << 20


def test_a_copied_slot_has_its_own_states():
    kept = recorded([5, 6, 7])
    kept.copied(0, 1, 2)
    recorded([8], 2, slot=1, kept=kept)
    assert kept.first(1, [5, 6, 8, 1]) == 0
    assert kept.first(0, [5, 6, 7, 1]) == 0


def test_the_array_of_the_model_may_be_overwritten():
    kept, states = HiddenStates(1, 2), np.ones((1, 2), np.float32)
    kept.record(0, 0, [5], states)
    states[:] = 0
    assert list(kept.state(0, 0)) == [1, 1]


def test_a_stored_text_brings_its_states_back():
    kept = recorded([5, 6, 7])
    kept.stored(0, 9, 0, 3)
    recorded([8, 8, 8], slot=0, kept=kept)
    kept.loaded(1, 9, 2)
    assert kept.first(1, [5, 6, 1]) == 0
    assert kept.first(0, [8, 8, 8, 1]) == 0


def test_with_what_was_forgotten_or_comes_from_disk_a_slot_has_no_states():
    kept = recorded([5, 6, 7])
    kept.stored(0, 9, 0, 3)
    kept.forget(9)
    kept.forget(3)
    kept.loaded(1, 9, 2)
    assert kept.first(1, [5, 6, 1]) == 2
    kept.record(1, 2, [1], np.ones((1, 2), np.float32))
    assert kept.first(1, [5, 6, 1, 1]) == 2


def test_a_slot_that_was_cut_back_goes_on_with_what_is_loaded():
    kept = recorded([5, 6, 7])
    kept.stored(0, 9, 1, 3)
    kept.trimmed(0, 1)
    kept.loaded(0, 9, 3)
    assert kept.first(0, [5, 6, 7, 8]) == 0
