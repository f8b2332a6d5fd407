"""What follows from how far a memory can be cut back."""

import pytest

from shared.llama.memory_traits import PLAIN, MemoryTraits


@pytest.mark.parametrize(
    ("traits", "can_trim", "can_speculate", "replays"),
    [
        (PLAIN, True, True, False),
        (MemoryTraits(n_rollback=4), False, True, False),
        (MemoryTraits(n_rollback=0, n_step_checkpoints=1), False, True, True),
        (MemoryTraits(n_rollback=0), False, False, False),
    ],
)
def test_what_a_memory_allows(traits, can_trim, can_speculate, replays):
    assert (traits.can_trim, traits.can_speculate, traits.replays) == (can_trim, can_speculate, replays)
