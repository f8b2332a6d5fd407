"""Fields that are null, as programs write those that they do not use."""

from typing import Any

from pydantic import BaseModel, model_validator


class NullIsDefault(BaseModel):
    """A part of a request in which null takes the field's default, if it has one."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {
            name: value for name, value in given.items() if value is not None or not cls._has_default(name)
        }

    @classmethod
    def _has_default(cls, name: str) -> bool:
        field = cls.model_fields.get(name)
        return field is not None and not field.is_required()
