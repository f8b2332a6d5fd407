import pytest

from lead.settings.sampling_defaults import SamplingDefaults, by_letters, by_names, by_names_or_letters
from shared.sampling.asked_fields import settable_parameters
from shared.sampling.parameters import MAX_REMEMBERED, SamplingParameters


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
    with pytest.raises(ValueError, match=r"^top_k can be used only once"):
        read(given)


OPTIONS = [name for name, asked in settable_parameters().items() if asked.option and name != "seed"]


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_has_the_default_of_the_parameter(name):
    assert getattr(SamplingDefaults(), name) == SamplingParameters.model_fields[name].default


@pytest.mark.parametrize(
    ("given", "used"),
    [({"temperature": 0.1}, 0.1), ({"repeat_last_n": -1}, MAX_REMEMBERED), ({"top_k": 0}, 0)],
)
def test_options_are_the_parameters_of_a_request_that_sets_nothing(given, used):
    (name,) = given
    sampling = SamplingDefaults(**given).with_seed(7)
    assert (sampling.seed, getattr(sampling, name)) == (7, used)
