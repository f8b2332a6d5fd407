"""Validation of request fields: bounds on lists and objects, null, unknown names.

An invalid request should cost no more than a valid one. By default, pydantic validates all elements, and
keeps an error for each element and each member of a union. With these defaults, a body of 4 MB took a minute
and gigabytes of memory.
"""

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

from lead.chat_format.unused_fields import Unused
from shared.errors import RequestError

MAX_MESSAGES = 10_000
"""The maximum number of messages in a conversation, and of parts in a message."""
MAX_TOOLS = 4096
"""The maximum of --max-tools."""
MAX_STOPS = 1024
"""The maximum of --max-stops."""
MAX_PROMPTS = 4096
"""The maximum of --max-prompts."""
MAX_PROMPT_ELEMENTS = 1 << 20
"""The maximum number of elements in a prompt: token ids, or texts and token ids."""


_MAX_NAME = 64
"""The longest unknown name, in characters, that is compared with known names for a hint."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """An annotation that bounds a list or dict: `Annotated[list[…], AtMost(n)]` has at most `n` elements.

    At most `n` + 1 elements are validated, and validation stops at the first invalid element.
    """

    n: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        schema |= {"max_length": self.n, "fail_fast": True}
        bounded: CoreSchema = schema
        return bounded


class NullIsDefault(BaseModel):
    """A part of a request in which null stands for the field's default, if it has one."""

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


class RequestFields(BaseModel):
    """The fields of a request. A field is supported, or has no effect (`unused`), or is refused by name."""

    unused: ClassVar[Mapping[str, Unused]] = {}
    inside: ClassVar[str] = ""
    """The prefix of the names of these fields in error messages."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_is_not_done(cls, given: Any) -> Any:
        if isinstance(given, dict):
            names = _names(cls)
            for name, value in given.items():
                if name not in names and value is not None:
                    cls._check_unused(name, given)
        return given

    @classmethod
    def _check_unused(cls, name: str, given: Mapping[str, Any]) -> None:
        """Raise RequestError unless the request means the same without this field."""
        path, unused = f"{cls.inside}{name}", cls.unused.get(name)
        if unused is None:
            meant = difflib.get_close_matches(name, _names(cls), 1) if len(name) <= _MAX_NAME else []
            hint = f": did you mean {cls.inside}{meant[0]}?" if meant else ""
            raise RequestError(f"{path}: unknown field{hint}", path)
        if not unused.is_harmless(given[name], given):
            raise RequestError(f"{path}: {unused.reason}", path)


@functools.cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of a model's fields in JSON."""
    aliases = [field.alias for field in model.model_fields.values() if field.alias]
    return frozenset({*model.model_fields, *aliases})


class ConvertedRequest(BaseModel):
    """The body of another chat API, converted to a chat request; errors name the fields of that API."""

    own_names: ClassVar[Mapping[str, str]]
    """By a field's name in a chat request: the field's name in this API, if it is another."""
