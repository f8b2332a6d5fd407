"""The sampling fields of requests in all APIs, made from `SamplingParameters`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic.fields import FieldInfo

from lead.chat_format.fields import AtMost, RequestFields
from lead.chat_format.unused_fields import SAMPLING
from shared.sampling.asked_fields import settable_parameters, with_sampling_fields
from shared.sampling.parameters import ApiNames

LogitBias = float | Literal[False]
_MAX_BIASES = 1 << 16
"""The maximum of --max-logit-bias."""
_MAX_SAMPLERS = 64
_MAX_BREAKERS = 64


def _optional(_name: str, field: FieldInfo, _asked: ApiNames) -> FieldInfo:
    """Return the field with its type only: the range is checked later, with the lead's defaults."""
    optional: Any = field.annotation
    return FieldInfo(annotation=optional | None, default=None, description=field.description)


@with_sampling_fields(_optional)
class SamplingFields(RequestFields, strict=True):
    """The sampling fields of a request. Absent or null fields have the lead's default.

    The class declares fields that requests write differently from `SamplingParameters`; all others are
    generated from it.
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
        """Return the sampling fields that the request sets, by name, with their original values."""
        return {name: value for name in settable_parameters() if (value := getattr(self, name)) is not None}
