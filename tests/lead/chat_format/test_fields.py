from typing import Annotated, Any, get_args

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticUndefined

from lead.chat_format.fields import AtMost
from lead.server.app import create_app

BODIES = {
    context.original_route.body_field.field_info.annotation
    for context in iter_route_contexts(create_app().routes)
    if isinstance(context.original_route, APIRoute) and context.original_route.body_field
}
OF_BACKS = {"Post"}
"""Messages of backs have at most 64 KB, and the protocol bounds them."""


@pytest.fixture
def seen():
    return []


@pytest.fixture
def adapter(seen):
    def look(value):
        seen.append(value)
        return value

    return TypeAdapter(Annotated[list[Annotated[int, BeforeValidator(look)]], AtMost(3)])


def test_as_many_elements_as_allowed_are_valid(adapter):
    assert adapter.validate_python([1, 2, 3]) == [1, 2, 3]


def test_of_a_list_that_is_too_long_no_more_than_one_too_many_are_validated(adapter, seen):
    with pytest.raises(ValidationError, match="at most 3 items"):
        adapter.validate_python([1] * 1000)
    assert len(seen) <= 4


def test_the_first_element_that_is_not_valid_ends_the_validation(adapter, seen):
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python([1, "x", "y"])
    assert (seen, refused.value.error_count()) == ([1, "x"], 1)


def test_members_of_objects_are_counted_too():
    bounded = TypeAdapter(Annotated[dict[str, int], AtMost(2)])
    with pytest.raises(ValidationError, match="at most 2 items"):
        bounded.validate_python({"a": 1, "b": 2, "c": 3})


def collections(schema, path=""):
    """(where, schema) of each list and dict with typed elements in a core schema."""
    if isinstance(schema, dict):
        elements = schema.get("items_schema") or schema.get("values_schema") or {"type": "any"}
        if schema.get("type") in ["list", "dict", "set", "tuple"] and elements["type"] != "any":
            yield path, schema
        for name, inner in schema.items():
            yield from collections(inner, f"{path}.{name}")
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from collections(inner, path)


def test_all_bodies_of_the_api_are_looked_at():
    names = {body.__name__ for body in BODIES}
    assert {"ChatRequest", "ResponsesRequest", "MessagesRequest", "NativeRequest", "Post"} <= names


@pytest.mark.parametrize("body", sorted(BODIES, key=lambda body: body.__name__), ids=lambda b: b.__name__)
def test_every_list_and_object_in_a_body_is_bounded(body: type[BaseModel]):
    if body.__name__ in OF_BACKS:
        return
    found: list[tuple[str, Any]] = list(collections(body.__pydantic_core_schema__))
    unbounded = [
        where for where, schema in found if not schema.get("max_length") or not schema.get("fail_fast")
    ]
    assert not unbounded, "annotate these with AtMost"


def inner_models(annotation):
    """The models that a type consists of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from inner_models(field.annotation)
    for each in get_args(annotation):
        yield from inner_models(each)


def request_models():
    found = {each for body in BODIES for each in inner_models(body)}
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
