"""T(n) of devices that are not here."""

import pytest

from lab.simulation.hardware import HARDWARE, PRINCIPAL, hardware_named


@pytest.mark.parametrize("hardware", HARDWARE, ids=lambda each: each.title)
def test_each_table_has_one_token_and_says_where_it_is_from(hardware):
    sizes = [n for n, _ in hardware.steps.points]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 1
    assert hardware.source
    assert all(seconds >= hardware.steps.seconds(1) for _, seconds in hardware.steps.points)


def test_a_name_may_have_several_weights():
    expected = {"8B Q4_0 (4.1 GB)", "40B Q4_0 (20 GB)", "70B Q4_0"}
    assert {each.weights for each in hardware_named("h200")} == expected
    assert not hardware_named("h2o")


def test_titles_tell_them_apart():
    assert len({each.title for each in HARDWARE}) == len(HARDWARE)
    assert len(PRINCIPAL) == 10
