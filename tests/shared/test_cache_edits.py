"""Edits of the cache are carried out in their order."""

from shared.cache_edits import (
    Copy,
    ForgetState,
    LoadState,
    LoadText,
    StoreState,
    StoreText,
    Trim,
    apply_edits,
    loads_last,
)
from shared.llama.span import Span
from tests.fakes import FakeTarget


def test_a_slot_is_copied_and_then_cut():
    target = FakeTarget(n_slots=2)
    target.decode([Span(0, 0, [1, 2, 4], 0)])
    apply_edits([Copy(0, 1, 2), Trim(0, 0), Trim(1, 1)], target)
    assert target.slots == [[], [1]]


def test_a_text_goes_on_in_another_slot():
    target = FakeTarget(n_slots=2)
    target.decode([Span(0, 0, [1, 2, 4], 0)])
    apply_edits([StoreText(0, 7), Trim(0, 0), LoadText(1, 7, 2), ForgetState(7)], target)
    assert target.slots == [[], [1, 2]]


def test_states_are_loaded_after_all_tokens_are_removed():
    edits = [Copy(0, 1, 3), LoadState(1, 5), StoreState(0, 6), Trim(0, 2), ForgetState(5)]
    assert loads_last(edits) == [Copy(0, 1, 3), StoreState(0, 6), Trim(0, 2), LoadState(1, 5), ForgetState(5)]


def test_a_slot_that_is_emptied_after_all_loads_no_state():
    assert loads_last([LoadState(1, 5), Trim(1, 0)]) == [Trim(1, 0)]


def test_a_text_is_loaded_after_others_have_gone_back_and_before_its_own_state():
    edits = [LoadText(1, 5, 9), LoadState(1, 6), LoadState(0, 7)]
    assert loads_last(edits) == [LoadState(0, 7), LoadText(1, 5, 9), LoadState(1, 6)]


def test_a_text_is_loaded_where_others_have_made_room():
    edits = [LoadText(1, 5, 9), StoreText(0, 6), Trim(0, 0)]
    assert loads_last(edits) == [StoreText(0, 6), Trim(0, 0), LoadText(1, 5, 9)]
