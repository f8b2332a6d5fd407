"""How cores are divided."""

import pytest

from lead.planning.core_splits import as_ranges, core_splits


@pytest.mark.parametrize(
    ("n_cores", "n_backs"), [(1, []), (2, [1]), (3, [1, 2]), (4, [1, 2]), (8, [1, 2, 4]), (64, [1, 16, 32])]
)
def test_the_back_gets_one_core_or_a_quarter_or_half_of_them(n_cores, n_backs):
    splits = core_splits(range(n_cores))
    assert [len(split.back) for split in splits] == n_backs
    assert all(sorted(split.lead + split.back) == list(range(n_cores)) for split in splits)


def test_a_lead_on_a_gpu_needs_one_core():
    (split,) = core_splits([0, 2, 4, 6], lead_is_offloaded=True)
    assert (split.lead, split.back) == ((0,), (2, 4, 6))


@pytest.mark.parametrize(("cores", "text"), [([0], "0"), ([3, 1, 2], "1-3"), ([0, 2, 3, 7], "0,2-3,7")])
def test_cores_are_written_as_options_take_them(cores, text):
    assert as_ranges(cores) == text
