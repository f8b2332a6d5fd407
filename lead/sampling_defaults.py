"""How requests are sampled that do not say otherwise: settings with the names and limits of requests."""

from copy import copy
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from shared.sampling import MAX_SEED, SamplingParameters


def _as_in_requests(name: str, description: str) -> Any:
    """The field of a request, its default and limits included."""
    field = copy(SamplingParameters.model_fields[name])
    field.description = description
    return field


class SamplingDefaults(BaseModel):
    """Mixed into the lead's settings."""

    model_config = ConfigDict(frozen=True)

    n_predict: int = Field(
        -1, ge=-2, le=1 << 24, description="most tokens of an answer; -1: until the context is full"
    )
    seed: int = Field(-1, ge=-1, le=MAX_SEED, description="-1: another one for each request")
    temperature: float = _as_in_requests("temperature", "how freely to choose; 0: the likeliest token")
    top_k: int = _as_in_requests("top_k", "choose among so many tokens; 0: all")
    top_p: float = _as_in_requests("top_p", "choose among the likeliest tokens of this much probability")
    min_p: float = _as_in_requests("min_p", "drop tokens less likely than the likeliest by this factor")
    typical_p: float = _as_in_requests("typical_p", "locally typical sampling; 1: off")
    repeat_penalty: float = _as_in_requests("repeat_penalty", "penalty for repeated tokens; 1: off")
    repeat_last_n: int = Field(
        64, ge=-1, le=1 << 24, description="tokens that penalties look back; -1: all, 0: none"
    )
    presence_penalty: float = _as_in_requests("presence_penalty", "penalty for tokens that were there")
    frequency_penalty: float = _as_in_requests("frequency_penalty", "the same for each time")
    ignore_eos: bool = Field(False, description="go on behind the end of the text")

    @property
    def sampling_defaults(self) -> "SamplingDefaults":
        """These settings alone."""
        return SamplingDefaults(**{name: getattr(self, name) for name in SamplingDefaults.model_fields})

    def parameters(self) -> dict[str, Any]:
        """The fields of `SamplingParameters` that have other defaults than there; never the seed."""
        names = SamplingDefaults.model_fields.keys() & SamplingParameters.model_fields.keys() - {"seed"}
        fields = SamplingParameters.model_fields
        return {name: value for name in names if (value := getattr(self, name)) != fields[name].default}
