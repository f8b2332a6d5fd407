"""Edits of the cache are carried out in their order."""

from shared.cache_edits import Copy, Forget, Restore, Snapshot, Store, Trim, apply_edits, loads_last
from shared.llama.span import Span
from tests.toy_model import FakeTarget


def state(key):
    return Snapshot("state", key, 2)


def text(key, n_tokens=9):
    return Snapshot("text", key, n_tokens)


def test_a_slot_is_copied_and_then_cut():
    target = FakeTarget(n_slots=2)
    target.decode([Span(0, 0, [1, 2, 4], 0)])
    apply_edits([Copy(0, 1, 2), Trim(0, 0), Trim(1, 1)], target)
    assert target.slots == [[], [1]]


def test_a_text_goes_on_in_another_slot():
    target = FakeTarget(n_slots=2)
    target.decode([Span(0, 0, [1, 2, 4], 0)])
    apply_edits([Store(0, text(7, 3)), Trim(0, 0), Restore(1, text(7, 3), 2), Forget(7)], target)
    assert target.slots == [[], [1, 2]]


def test_states_are_loaded_after_all_tokens_are_removed():
    edits = [Copy(0, 1, 3), Restore(1, state(5), 2), Store(0, state(6)), Trim(0, 2), Forget(5)]
    expected = [Copy(0, 1, 3), Store(0, state(6)), Trim(0, 2), Restore(1, state(5), 2), Forget(5)]
    assert loads_last(edits) == expected


def test_a_slot_that_is_emptied_after_all_loads_no_state():
    assert loads_last([Restore(1, state(5), 2), Trim(1, 0)]) == [Trim(1, 0)]


def test_a_text_is_loaded_after_others_have_gone_back_and_before_its_own_state():
    edits = [Restore(1, text(5), 9), Restore(1, state(6), 2), Restore(0, state(7), 2)]
    assert loads_last(edits) == [Restore(0, state(7), 2), Restore(1, text(5), 9), Restore(1, state(6), 2)]


def test_a_text_is_loaded_where_others_have_made_room():
    edits = [Restore(1, text(5), 9), Store(0, text(6)), Trim(0, 0)]
    assert loads_last(edits) == [Store(0, text(6)), Trim(0, 0), Restore(1, text(5), 9)]
