import pytest

from chat.errors import CommandError
from chat.sampling import Sampling
from shared.sampling.parameters import SamplingParameters


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        *(("temperature", "0.2", 0.2), ("temperature", "0", 0.0), ("top_k", "40", 40)),
        *(("top-k", "-1", -1), ("Max_Tokens", "7", 7), ("seed", "0", 0)),
    ],
)
def test_a_typed_value_is_parsed(name, text, value):
    assert list(Sampling().with_value(name, text).chosen.values()) == [value]


def test_setting_a_parameter_keeps_the_others():
    assert Sampling(seed=1).with_value("top_p", "0.5").chosen == {"seed": 1, "top_p": 0.5}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("temperature", "-1", "temperature should be greater than or equal to 0, not '-1'."),
        ("temperature", "hot", "temperature should be a valid number, not 'hot'."),
        ("temperature", "nan", "temperature should be a finite number, not 'nan'."),
        ("top_p", "1.1", "top_p should be less than or equal to 1, not '1.1'."),
        ("repeat_penalty", "0", "repeat_penalty should be greater than or equal to 0.000001, not '0'."),
        ("seed", "1.5", "seed should be a valid integer, not '1.5'."),
        ("max_tokens", "0", "max_tokens should be greater than or equal to 1, not '0'."),
        ("temprature", "1", "There is no parameter 'temprature'. Did you mean temperature?"),
        ("temp", "1", "There is no parameter 'temp'. Did you mean temperature?"),
        ("color", "1", "There is no parameter 'color'. ':set' alone lists the parameters."),
    ],
)
def test_a_wrong_value_is_explained(name, text, sentence):
    with pytest.raises(CommandError) as caught:
        Sampling().with_value(name, text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", sorted(Sampling.model_fields.keys() - {"max_tokens"}))
def test_a_parameter_has_the_range_of_the_server(name):
    ours, theirs = Sampling.model_json_schema()["properties"], SamplingParameters.model_json_schema()
    limits = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    number = ours[name]["anyOf"][0]
    assert {key: number.get(key) for key in limits} == {
        key: theirs["properties"][name].get(key) for key in limits
    }
