"""Edits of the cache are carried out in their order."""

from lead.engine.cache_edits import Copy, Trim, apply_edits
from shared.llama.span import Span
from tests.fakes import FakeTarget


def test_a_slot_is_copied_and_then_cut():
    target = FakeTarget(n_slots=2)
    target.decode([Span(0, 0, [1, 2, 4], 0)])
    apply_edits([Copy(0, 1, 2), Trim(0, 0), Trim(1, 1)], target)
    assert target.slots == [[], [1]]
