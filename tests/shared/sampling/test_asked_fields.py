from pydantic import BaseModel
from pydantic.fields import FieldInfo

from shared.sampling.asked_fields import settable_parameters, with_sampling_fields
from shared.sampling.parameters import SamplingParameters


def numbers(name, _field, asked):
    return FieldInfo(annotation=int, default=3) if name.startswith("top_") and asked.option else None


@with_sampling_fields(numbers)
class Hand(BaseModel, frozen=True):
    """A few."""

    top_k: str = "own"


def test_a_model_gets_a_field_for_each_parameter_of_which_a_form_is_made():
    assert Hand().model_dump() == {"top_k": "own", "top_p": 3, "top_n_sigma": 3}


def test_a_model_keeps_its_name_its_module_its_docstring_and_its_configuration():
    assert (Hand.__name__, Hand.__module__, Hand.__doc__) == ("Hand", __name__, "A few.")
    assert Hand.model_config["frozen"]


def test_only_what_the_lead_computes_is_not_asked_for():
    assert SamplingParameters.model_fields.keys() - settable_parameters().keys() == {"grammar_start", "calls"}
