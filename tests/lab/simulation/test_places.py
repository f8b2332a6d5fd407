"""Where a draft model may run beside hardware that is not here."""

import pytest

from lab.simulation.hardware import H200_8B, M2_ULTRA, RTX_4090
from lab.simulation.places import LARGE_PLACES, SMALL_PLACES


@pytest.mark.parametrize("place", [*SMALL_PLACES, *LARGE_PLACES], ids=lambda each: each.name)
def test_a_draft_model_is_in_the_engine_or_in_a_back(place):
    cell = place.cell(M2_ULTRA, 0.7, 64)
    assert (cell.inline is None) == bool(cell.backs) == (place.token_s is not None)


def test_what_does_not_fit_or_is_far_too_slow_is_left_out():
    engine, cpu, _ = LARGE_PLACES
    assert engine.cell(RTX_4090, 0.7, 64) is None
    assert cpu.cell(H200_8B, 0.7, 64) is None
