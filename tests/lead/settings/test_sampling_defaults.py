"""Filters by their names and letters."""

import pytest

from lead.settings.sampling_defaults import by_letters, by_names, by_names_or_letters


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
def test_names_and_letters_are_distinguished(given, expected):
    assert by_names_or_letters(given) == expected


@pytest.mark.parametrize(("read", "given"), [(by_letters, "kz"), (by_names, ["top_k", "z"])])
def test_an_unknown_sampler_is_an_error(read, given):
    with pytest.raises(ValueError, match="'z' is not one of penalties, "):
        read(given)


@pytest.mark.parametrize(("read", "given"), [(by_letters, "ktk"), (by_names, ["top_k", "temp", "top-k"])])
def test_a_repeated_sampler_is_an_error(read, given):
    with pytest.raises(ValueError, match=r"^top_k may be used only once"):
        read(given)
