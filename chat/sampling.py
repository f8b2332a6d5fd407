"""The sampling parameters that chat can request.

Parameters that are not set are not sent, so the server's defaults apply.
"""

import difflib
from copy import copy
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from chat.errors import CommandError
from shared.sampling.asked_fields import with_sampling_fields
from shared.sampling.parameters import ApiNames


def _optional(_: str, field: FieldInfo, asked: ApiNames) -> FieldInfo | None:
    """Return the field as an optional parameter with its range; None if chat does not have it."""
    if not asked.in_chat:
        return None
    optional = copy(field)
    optional.annotation = field.annotation | None  # type: ignore[assignment,operator]  # a type, at run time
    optional.default = None
    return optional


@with_sampling_fields(_optional)
class _Parameters(BaseModel, frozen=True):
    """The fields of `SamplingParameters` that chat has."""


class Sampling(_Parameters):
    """Sampling parameters that the user chose. None is the server's default."""

    max_tokens: int | None = Field(
        None, ge=1, lt=1 << 31, description="maximum number of tokens in an answer"
    )

    @property
    def chosen(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)

    def with_value(self, name: str, text: str) -> Self:
        """Return a copy with one parameter set to the text that a person typed; `none` unsets it.

        Raises CommandError.
        """
        name = known_name(name)
        value = None if text.lower() == "none" else text
        try:
            return self.model_validate({**self.model_dump(), name: value})
        except ValidationError as error:
            wrong = error.errors()[0]["msg"].partition(",")[0].replace("Input", name, 1)
            raise CommandError(f"{wrong}, not {text!r}.") from error


def known_name(name: str) -> str:
    """Return the parameter's name as in `Sampling`, from `name` with dashes or underscores.

    Raises CommandError.
    """
    field = name.lower().replace("-", "_")
    if field in Sampling.model_fields:
        return field
    begun = [each for each in Sampling.model_fields if field and each.startswith(field)]
    close = begun or difflib.get_close_matches(field, Sampling.model_fields, n=2)
    hint = f"Did you mean {' or '.join(close)}?" if close else "':set' alone lists the parameters."
    raise CommandError(f"There is no parameter {name!r}. {hint}")
