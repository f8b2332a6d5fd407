"""The gain of drafts from other machines, predicted from the times of the lead's steps."""

import pytest

from lab.simulation.hardware import (
    H200_8B,
    H200_20GB,
    H200_70B,
    HARDWARE,
    M2_ULTRA,
    M2_ULTRA_Q4_K,
    OFFLOADED,
    RTX_3090_PAIR,
    RTX_4090,
    SPARK,
)
from shared.diagnostics.prospects import Prospect, best_gain, prospect, prospect_of_weights

GB = 1 << 30


def of(hardware):
    return prospect(dict(hardware.steps.points))


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        *((each, Prospect.SHORT) for each in (H200_8B, H200_20GB)),
        *((each, Prospect.MEDIUM) for each in (H200_70B, RTX_4090, RTX_3090_PAIR)),
        *((each, Prospect.LONG) for each in (M2_ULTRA, OFFLOADED, SPARK)),
        (M2_ULTRA_Q4_K, Prospect.STEEP),
    ],
    ids=lambda each: getattr(each, "title", each),
)
def test_published_devices_stand_where_simulations_put_them(hardware, expected):
    assert of(hardware) is expected


def test_a_mixture_that_reads_more_experts_for_each_token_does_not_pay():
    (mixture,) = (each for each in HARDWARE if each.name == "glm-air")
    assert of(mixture) is Prospect.STEEP


def test_steps_that_are_flat_only_at_some_sizes_pay():
    assert prospect({1: 0.15, 2: 0.156, 3: 0.9, 4: 0.159}) is Prospect.LONG
    assert best_gain({1: 1.0, 2: 1.04, 3: 6.0, 4: 1.06}) == (pytest.approx(2.533 / 1.06), 4)


@pytest.mark.parametrize("steps", [{}, {1: 0.02}, {2: 0.02, 4: 0.03}])
def test_without_times_nothing_is_said(steps):
    assert prospect(steps) is Prospect.UNKNOWN


@pytest.mark.parametrize(
    ("ram_bytes", "traits", "expected"),
    [
        (0, {}, Prospect.UNKNOWN),
        (GB, {}, Prospect.UNKNOWN),
        (20 * GB, {}, Prospect.LONG),
        (20 * GB, {"is_mixture": True}, Prospect.STEEP),
        (0, {"has_metal_k_quants": True}, Prospect.STEEP),
    ],
)
def test_before_anything_is_measured_weights_in_ram_tell(ram_bytes, traits, expected):
    known = {"is_mixture": False, "has_metal_k_quants": False} | traits
    assert prospect_of_weights(ram_bytes, **known) is expected
