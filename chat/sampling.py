"""The sampling parameters that chat can ask for, their ranges and what they mean.

Unset ones are not sent: the server's own defaults rule. The ranges mirror those of
`shared.sampling.sampler`, which chat cannot import (it needs numpy); a test holds the two together.
"""

import difflib
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chat.errors import CommandError

MAX_SEED = (1 << 63) - 1

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Sampling(BaseModel):
    """None stands for the server's default."""

    model_config = ConfigDict(frozen=True)

    temperature: Finite | None = Field(None, ge=0, le=1e6, description="0: always the likeliest token")
    top_k: int | None = Field(
        None, ge=-1, lt=1 << 31, description="keep the k likeliest tokens; 0 or -1: all"
    )
    top_p: Finite | None = Field(None, ge=0, le=1, description="keep the likeliest tokens up to this much")
    min_p: Finite | None = Field(None, ge=0, le=1, description="drop tokens less likely than this x the best")
    typical_p: Finite | None = Field(None, ge=0, le=1, description="locally typical sampling; 1: off")
    repeat_penalty: Finite | None = Field(None, ge=1e-6, le=1e6, description="above 1: fewer repetitions")
    presence_penalty: Finite | None = Field(None, ge=-1e6, le=1e6, description="above 0: more new words")
    frequency_penalty: Finite | None = Field(
        None, ge=-1e6, le=1e6, description="above 0: fewer often used words"
    )
    seed: int | None = Field(None, ge=0, le=MAX_SEED, description="the same seed gives the same text")
    max_tokens: int | None = Field(None, ge=1, lt=1 << 31, description="the longest answer")

    @property
    def chosen(self) -> dict[str, Any]:
        """The parameters that are set: the part of a request."""
        return self.model_dump(exclude_none=True)

    def with_value(self, name: str, text: str) -> Self:
        """A copy with one parameter set as a person typed it; `none` unsets it. Raises CommandError."""
        name = known_name(name)
        value = None if text.lower() == "none" else text
        try:
            return self.model_validate({**self.model_dump(), name: value})
        except ValidationError as error:
            wrong = error.errors()[0]["msg"].partition(",")[0].replace("Input", name, 1)
            raise CommandError(f"{wrong}, not {text!r}.") from error


def known_name(name: str) -> str:
    """The parameter meant by `name`, with either dashes or underscores. Raises CommandError."""
    field = name.lower().replace("-", "_")
    if field in Sampling.model_fields:
        return field
    begun = [each for each in Sampling.model_fields if field and each.startswith(field)]
    close = begun or difflib.get_close_matches(field, Sampling.model_fields, n=2)
    hint = f"Did you mean {' or '.join(close)}?" if close else "':set' alone lists the parameters."
    raise CommandError(f"There is no parameter {name!r}. {hint}")
