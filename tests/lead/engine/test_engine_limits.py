"""What the scheduler knows of the model."""

import pytest

from shared.llama.memory_traits import PLAIN, MemoryTraits
from tests.fakes import make_limits

ROLLBACK = MemoryTraits(n_rollback=3, equal_lengths=True)
REPLAYING = MemoryTraits(n_rollback=0, n_step_checkpoints=1, equal_lengths=True)


@pytest.mark.parametrize(
    ("traits", "n_ctx_slot", "pads"),
    [(PLAIN, None, False), (PLAIN, 100, True), (ROLLBACK, None, True), (REPLAYING, None, False)],
)
def test_drafts_are_padded_where_that_saves_a_pass_and_costs_no_replay(traits, n_ctx_slot, pads):
    assert make_limits(traits=traits, n_ctx_slot=n_ctx_slot).pads_unequal_lengths == pads
