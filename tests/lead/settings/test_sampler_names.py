"""Filters by their names and letters."""

import pytest

from lead.settings.sampler_names import by_letters, by_names, by_names_or_letters
from shared.sampling.sampler import DEFAULT_SAMPLERS


def test_every_filter_has_a_letter():
    assert by_letters("edskypmxt") == DEFAULT_SAMPLERS


def test_former_names_are_understood():
    assert by_names(["typical", "nucleus", "temp", "min-p"]) == ("typ_p", "top_p", "temperature", "min_p")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", ()),
        ("temp", ("temperature",)),
        ("tkp", ("temperature", "top_k", "top_p")),
        ("top_p; top_k;", ("top_p", "top_k")),
        (["top_k"], ["top_k"]),
    ],
)
def test_names_are_told_from_letters(given, expected):
    assert by_names_or_letters(given) == expected


@pytest.mark.parametrize(("read", "given"), [(by_letters, "kz"), (by_names, ["top_k", "z"])])
def test_what_is_none_is_named(read, given):
    with pytest.raises(ValueError, match="'z' is none of penalties, "):
        read(given)


@pytest.mark.parametrize(("read", "given"), [(by_letters, "ktk"), (by_names, ["top_k", "temp", "top-k"])])
def test_one_that_stands_there_twice_is_named(read, given):
    with pytest.raises(ValueError, match=r"^top_k may stand there once"):
        read(given)
