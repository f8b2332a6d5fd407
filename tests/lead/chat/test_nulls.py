"""A field that is null takes its default, wherever there is one."""

from typing import get_args

import pytest
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from lead.server.app import create_app


def inner_models(annotation):
    """The models that a type consists of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from inner_models(field.annotation)
    for each in get_args(annotation):
        yield from inner_models(each)


def request_models():
    routes = [context.original_route for context in iter_route_contexts(create_app().routes)]
    bodies = [
        route.body_field.field_info.annotation for route in routes if getattr(route, "body_field", None)
    ]
    found = {each for body in bodies for each in inner_models(body)}
    of_clients = {each for each in found if each.__module__.startswith("lead.")}
    return sorted(of_clients, key=lambda each: each.__name__)


@pytest.mark.parametrize("model", request_models())
def test_null_is_the_default_of_every_field_that_has_one(model):
    optional = {name: field for name, field in model.model_fields.items() if not field.is_required()}
    given = {field.alias or name: None for name, field in optional.items()}
    try:
        filled = model.model_validate(given)
    except ValidationError as error:  # of required fields
        wrong = {item["loc"][0] for item in error.errors(include_context=False)}
        assert not wrong & given.keys()
    else:
        defaults = {name: field.get_default(call_default_factory=True) for name, field in optional.items()}
        assert PydanticUndefined not in defaults.values()
        assert {name: getattr(filled, name) for name in optional} == defaults
