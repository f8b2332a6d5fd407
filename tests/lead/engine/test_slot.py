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


@pytest.mark.parametrize(
    ("n_cached", "n_generated", "traits", "generates"),
    [
        (4, 0, PLAIN, True),
        (3, 0, PLAIN, False),
        (4, 3, REPLAYING, True),
        (1, 0, REPLAYING, False),
        (4, 3, PLAIN, False),
        (4, MAX_REPLAY + MAX_DEPTH, REPLAYING, False),
    ],
    ids=[
        "the last of a prompt",
        "a prompt",
        "replayed",
        "a prompt is not replayed",
        "read again",
        "too much",
    ],
)
def test_a_slot_generates_that_has_a_token_to_decode_or_a_few_to_replay(
    n_cached, n_generated, traits, generates
):
    assert slot_of(n_cached, 5, n_generated, traits).is_generating == generates


@pytest.mark.parametrize("traits", [PLAIN, REPLAYING], ids=["plain", "replaying"])
@pytest.mark.parametrize("n_draft", [0, 6])
def test_a_slot_whose_draft_is_in_the_cache_needs_a_token_like_any_other(traits, n_draft):
    slot = slot_of(4, 5, 3, traits)
    slot.cache.add(range(n_draft + slot.n_to_decode - 1))
    assert slot.n_required == 1


@pytest.mark.parametrize(("n_cached", "n"), [(0, 3), (2, 1), (3, 4), (6, 1), (7, 3), (9, 1)])
def test_a_prompt_is_read_up_to_its_next_checkpoint(n_cached, n):
    assert slot_of(n_cached, 10, 0, checkpoints=(3, 7)).n_to_next_checkpoint == n
