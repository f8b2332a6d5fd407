"""A slot knows which tokens it has to decode."""

from lead.engine.sequence import EngineSequence
from lead.engine.slot import Slot
from shared.slot_cache import SlotCache


def test_an_empty_slot_has_nothing_to_decode():
    assert Slot(SlotCache(0)).n_to_decode == 0


def test_committed_tokens_that_are_not_cached_are_to_be_decoded():
    slot = Slot(SlotCache(4, [0, 1], 2), EngineSequence("s", [0, 1, 2, 3, 4], lambda: None, None))
    assert (slot.index, slot.n_to_decode) == (4, 3)
