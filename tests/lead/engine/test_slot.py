"""A slot knows which tokens it has to decode."""

import pytest

from lead.engine.slot import MAX_REPLAY, Slot
from lead.engine.speculation.constants import MAX_DEPTH
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.slot_cache import SlotCache
from tests.toy_engine import engine_sequence

REPLAYING = MemoryTraits(n_rollback=0, n_step_checkpoints=1)


def slot_of(n_cached, n_prompt, n_generated, traits=PLAIN, checkpoints=()):
    sequence = engine_sequence(tokens=range(n_prompt), checkpoints=checkpoints)
    sequence.tokens += range(n_prompt, n_prompt + n_generated)
    cache = SlotCache(0, traits)
    cache.add(sequence.tokens[:n_cached])
    return Slot(cache, sequence)


def test_the_last_token_of_a_prompt_makes_a_slot_generate():
    assert slot_of(4, 5, 0).is_generating
    assert not slot_of(3, 5, 0).is_generating


def test_replayed_tokens_do_not_make_a_slot_read_a_prompt():
    assert slot_of(4, 5, 3, REPLAYING).is_generating


def test_a_prompt_is_not_replayed():
    assert not slot_of(1, 5, 0, REPLAYING).is_generating


def test_a_text_that_must_be_read_again_is_like_a_prompt():
    assert not slot_of(4, 5, 3, PLAIN).is_generating
    assert not slot_of(4, 5, MAX_REPLAY + MAX_DEPTH, REPLAYING).is_generating


@pytest.mark.parametrize(("n_cached", "n"), [(0, 3), (2, 1), (3, 4), (6, 1), (7, 3), (9, 1)])
def test_a_prompt_is_read_up_to_its_next_checkpoint(n_cached, n):
    assert slot_of(n_cached, 10, 0, checkpoints=(3, 7)).n_to_next_checkpoint == n
