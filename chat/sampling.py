"""The sampling parameters that chat can ask for, their ranges and what they mean.

Those that are not set are not sent, so the server's own defaults apply. The ranges are those of
`shared.sampling.parameters`; a test compares the two.
"""

import difflib
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError

from chat.errors import CommandError
from shared.sampling.parameters import MAX_SEED, Finite


class Sampling(BaseModel, frozen=True):
    """None: the server's default."""

    temperature: Finite | None = Field(
        None, ge=0, le=1e6, description="temperature; 0: always the most likely token"
    )
    top_k: int | None = Field(None, ge=-1, lt=1 << 31, description="top-k sampling; 0 or -1: disabled")
    top_p: Finite | None = Field(None, ge=0, le=1, description="top-p sampling; 1: disabled")
    min_p: Finite | None = Field(None, ge=0, le=1, description="min-p sampling; 0: disabled")
    typical_p: Finite | None = Field(
        None, ge=0, le=1, description="locally typical sampling, parameter p; 1: disabled"
    )
    repeat_penalty: Finite | None = Field(
        None, ge=1e-6, le=1e6, description="penalty for repeated tokens; 1: disabled"
    )
    presence_penalty: Finite | None = Field(
        None, ge=-1e6, le=1e6, description="penalty for tokens that have occurred; 0: disabled"
    )
    frequency_penalty: Finite | None = Field(
        None, ge=-1e6, le=1e6, description="penalty for each time that a token has occurred; 0: disabled"
    )
    seed: int | None = Field(
        None, ge=0, le=MAX_SEED, description="RNG seed; the same seed gives the same text"
    )
    max_tokens: int | None = Field(
        None, ge=1, lt=1 << 31, description="maximum number of tokens in an answer"
    )

    @property
    def chosen(self) -> dict[str, Any]:
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
