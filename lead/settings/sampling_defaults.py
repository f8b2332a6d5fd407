"""How requests are sampled that do not say otherwise: settings with the names and limits of requests."""

import re
from copy import copy
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from lead.settings.sampler_names import by_names_or_letters
from shared.sampling.sampler import MAX_SEED, Breaker, SamplerName, SamplingParameters

_ESCAPED: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|[nrt'\"\\])")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def _as_in_requests(name: str, description: str) -> Any:
    """The field of a request, its default and limits included."""
    field = copy(SamplingParameters.model_fields[name])
    field.description = description
    return field


def _unescape(text: str) -> str:
    """Line breaks and the like as llama-server's command line has them."""
    return _ESCAPED.sub(
        lambda match: chr(int(match[1][1:], 16)) if match[1][0] == "x" else _ESCAPES.get(match[1], match[1]),
        text,
    )


def _read_breakers(given: object) -> object:
    """Texts with commas between them; "none"."""
    if not isinstance(given, str):
        return given
    parts = [part for part in given.split(",") if part] or [","]
    return () if parts == ["none"] else tuple(map(_unescape, parts))


Samplers = Annotated[tuple[SamplerName, ...], NoDecode, BeforeValidator(by_names_or_letters)]
Breakers = Annotated[tuple[Breaker, ...], NoDecode, BeforeValidator(_read_breakers)]


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
    dry_multiplier: float = _as_in_requests(
        "dry_multiplier", "penalty for sequences of tokens that were there (DRY); 0: off"
    )
    dry_base: float = Field(
        1.75, ge=1, le=1e6, description="it grows by this factor with each token of such a sequence"
    )
    dry_allowed_length: int = _as_in_requests("dry_allowed_length", "longest sequence without that penalty")
    dry_penalty_last_n: int = _as_in_requests(
        "dry_penalty_last_n", "tokens that it looks back; -1: all, 0: none"
    )
    dry_sequence_breakers: Breakers = _as_in_requests(
        "dry_sequence_breakers",
        r"where such sequences end: texts with commas between them (one in a text: \x2c), or none",
    )
    xtc_probability: float = _as_in_requests("xtc_probability", "how often to exclude top choices; 0: never")
    xtc_threshold: float = _as_in_requests(
        "xtc_threshold", "those at least so likely but one; above 0.5: off"
    )
    top_n_sigma: float = _as_in_requests(
        "top_n_sigma", "drop tokens by so many standard deviations of all logits below the likeliest; -1: off"
    )
    dynatemp_range: float = _as_in_requests(
        "dynatemp_range", "the temperature varies so far with how sure the model is; 0: not at all"
    )
    dynatemp_exponent: float = _as_in_requests("dynatemp_exponent", "how that depends on the entropy")
    samplers: Samplers = _as_in_requests(
        "samplers", "the filters in their order, as in top_k;top_p;temperature or kpt"
    )
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
