"""What a lead and the models that it starts may keep of earlier texts, together."""

import pytest

from lead.settings.cache_shares import cache_shares
from lead.settings.lead_settings import LeadSettings

MIB = 1 << 20


@pytest.fixture
def shares(tmp_path):
    """With models of 100, 10 and 10 MiB, and so much free memory."""

    def shares(n_free_mib, *arguments):
        for name, size in (("target", 100), ("draft", 10), ("back", 10)):
            with (tmp_path / f"{name}.gguf").open("wb") as file:
                file.truncate(size * MIB)
        given = [f"{tmp_path}/{each}" if each.endswith(".gguf") else each for each in arguments]
        settings = LeadSettings.from_command_line(["--model", f"{tmp_path}/target.gguf", *given])
        return cache_shares(settings, n_free_mib * MIB)

    return shares


def test_a_target_alone_gets_a_quarter_of_what_its_weights_leave(shares):
    assert shares(900) == (200, 0, 0)


def test_a_draft_model_and_a_back_share_that_quarter(shares):
    assert shares(920, "--draft-model", "draft.gguf", "--back", "back.gguf") == (150, 25, 25)


def test_a_file_that_two_use_is_in_memory_once(shares):
    assert shares(910, "--draft-model", "draft.gguf", "--back", "draft.gguf") == (150, 25, 25)


def test_the_option_bounds_all_together(shares):
    assert shares(9000, "--back", "back.gguf", "--cache-ram", "80") == (70, 0, 10)


def test_without_a_limit_the_free_memory_bounds_them(shares):
    assert (
        sum(shares(80_920, "--draft-model", "draft.gguf", "--back", "back.gguf", "--cache-ram", "-1"))
        == 20_200
    )


def test_where_the_weights_take_it_all_nothing_is_kept(shares):
    assert shares(50) == (0, 0, 0)


def test_a_file_that_is_not_there_takes_nothing(shares):
    assert shares(900, "--back", "missing.gguf") == (175, 0, 25)
