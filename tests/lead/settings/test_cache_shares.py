"""The memory in which a lead and the models that it starts may together keep earlier texts."""

import pytest

from lead.settings.cache_shares import cache_shares
from lead.settings.lead_settings import LeadSettings

MIB = 1 << 20


def shares(n_free_mib, *arguments):
    """The shares of the caches with this much free memory."""
    settings = LeadSettings.from_command_line(["--model", "target.gguf", *arguments])
    return cache_shares(settings, n_free_mib * MIB)


def test_a_target_alone_gets_a_quarter():
    assert shares(800) == (200, 0, 0)


def test_a_draft_model_and_a_back_share_that_quarter():
    assert shares(800, "--draft-model", "draft.gguf", "--back", "back.gguf") == (150, 25, 25)


@pytest.mark.parametrize(("n_free_mib", "n_back_mib"), [(1000, 6), (700, 0)])
def test_a_back_gets_its_share_of_what_the_targets_weights_leave(tmp_path, n_free_mib, n_back_mib):
    target = tmp_path / "target.gguf"
    with target.open("wb") as file:
        file.truncate(800 * MIB)
    found = shares(n_free_mib, "--model", str(target), "--back", "back.gguf")
    assert (found.back, found.draft) == (n_back_mib, 0)
    assert found.target > n_free_mib / 5


def test_the_option_bounds_all_together():
    assert shares(9000, "--back", "back.gguf", "--cache-ram", "80") == (70, 0, 10)


def test_without_a_limit_the_free_memory_bounds_them():
    assert sum(shares(80_800, "--draft-model", "d.gguf", "--back", "b.gguf", "--cache-ram", "-1")) == 20_200


def test_without_free_memory_nothing_is_kept():
    assert shares(0) == (0, 0, 0)
