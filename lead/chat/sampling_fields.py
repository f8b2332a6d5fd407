"""Sampling fields of requests of all APIs: those of `SamplingParameters`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic.fields import FieldInfo

from lead.chat.fields import AtMost, RequestFields
from lead.chat.unused_fields import SAMPLING
from shared.sampling.asked_fields import asked_for, with_sampling_fields
from shared.sampling.parameters import Asked

LogitBias = float | Literal[False]
_MAX_BIASES = 1 << 16
"""The most that --max-logit-bias can allow."""
_MAX_SAMPLERS = 64
_MAX_BREAKERS = 64


def _optional(_name: str, field: FieldInfo, _asked: Asked) -> FieldInfo:
    """The type alone: the parameter's range is checked once the defaults are known."""
    optional: Any = field.annotation
    return FieldInfo(annotation=optional | None, default=None, description=field.description)


@with_sampling_fields(_optional)
class SamplingFields(RequestFields, strict=True):
    """A field that is absent or null takes the lead's default.

    These are written in another way than the parameters are; all others are made of them.
    """

    unused: ClassVar = SAMPLING

    seed: int | None = None
    dry_sequence_breakers: Annotated[list[str], AtMost(_MAX_BREAKERS)] | None = None
    samplers: str | Annotated[list[str], AtMost(_MAX_SAMPLERS)] | None = None
    logit_bias: (
        Annotated[dict[str, LogitBias], AtMost(_MAX_BIASES)]
        | Annotated[list[Annotated[list[int | str | LogitBias], AtMost(2)]], AtMost(_MAX_BIASES)]
        | None
    ) = None
    grammar: str | None = None

    def sampling(self) -> dict[str, Any]:
        """The sampling fields that are given, by name, as they were written."""
        return {name: value for name in asked_for() if (value := getattr(self, name)) is not None}
