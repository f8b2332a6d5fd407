"""The values of options."""

from pydantic import BaseModel


def option(settings, name):
    """The value of an option in any group."""
    groups = [settings, *(value for _, value in settings if isinstance(value, BaseModel))]
    (found,) = [getattr(group, name) for group in groups if name in type(group).model_fields]
    return found
