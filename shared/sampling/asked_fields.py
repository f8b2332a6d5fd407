"""Makes record fields for sampling parameters from one table, `SamplingParameters`.

The requests of all APIs, the lead's options and chat's parameters get their fields here.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from shared.sampling.parameters import ApiNames, SamplingParameters

T = TypeVar("T", bound=BaseModel)
Form = Callable[[str, FieldInfo, ApiNames], FieldInfo | None]
"""Makes a field from a parameter's name, field and `ApiNames`; None: no field."""


@functools.cache
def settable_parameters() -> Mapping[str, ApiNames]:
    """Return all parameters that requests or options can set."""
    return {
        name: asked
        for name, field in SamplingParameters.model_fields.items()
        for asked in field.metadata
        if isinstance(asked, ApiNames)
    }


def with_sampling_fields(form: Form) -> Callable[[type[T]], type[T]]:
    """Return a decorator of models that adds a field, made by `form`, for each parameter that can be set.

    A field that the model itself declares is kept.
    """

    def add(model: type[T]) -> type[T]:
        fields: dict[str, Any] = {}
        for name, asked in settable_parameters().items():
            made = form(name, SamplingParameters.model_fields[name], asked)
            if made is not None and name not in model.model_fields:
                fields[name] = (made.annotation, made)
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
        )

    return add
