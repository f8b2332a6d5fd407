"""Sampling defaults for requests: options with the names, defaults and ranges of request fields."""

import re
from collections.abc import Iterable
from copy import copy
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from shared.sampling.parameters import DEFAULT_SAMPLERS, MAX_SEED, Breaker, SamplerName, SamplingParameters
from shared.settings.options import AsWritten, OptionGroup

_ESCAPED: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|[nrt'\"\\])")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_LETTERS: dict[str, SamplerName] = dict(zip("edskypmxt", DEFAULT_SAMPLERS, strict=True))
_NAMES: dict[str, SamplerName] = {name: name for name in DEFAULT_SAMPLERS} | {
    "typical_p": "typ_p",
    "typical": "typ_p",
    "nucleus": "top_p",
    "temp": "temperature",
}


def by_letters(letters: str) -> tuple[SamplerName, ...]:
    """`"kpt"`: top_k, top_p, temperature. Raises ValueError for unknown and repeated ones."""
    return _each_once(_known(letter, _LETTERS.get(letter)) for letter in letters)


def by_names(names: Iterable[str]) -> tuple[SamplerName, ...]:
    """By names, including former ones of llama.cpp. Raises ValueError as `by_letters` does."""
    return _each_once(_known(name, _NAMES.get(name.replace("-", "_"))) for name in names)


def by_names_or_letters(given: object) -> object:
    """From `"top_k;temperature"` or letters; other values than strings are returned unchanged.

    A string that is a name is not read as letters. Raises ValueError.
    """
    if not isinstance(given, str):
        return given
    names = [name.strip() for name in given.split(";") if name.strip()]
    is_letters = len(names) == 1 and names[0].replace("-", "_") not in _NAMES
    return by_letters(names[0]) if is_letters else by_names(names)


def _known(given: str, name: SamplerName | None) -> SamplerName:
    if name is None:
        raise ValueError(f"{given!r} is not one of {', '.join(DEFAULT_SAMPLERS)}")
    return name


def _each_once(given: Iterable[SamplerName]) -> tuple[SamplerName, ...]:
    names = tuple(given)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"{', '.join(twice)} may be used only once")
    return names


def _as_in_requests(name: str, description: str) -> Any:
    """The field of a request, with its default and its range."""
    field = copy(SamplingParameters.model_fields[name])
    field.description = description
    return field


def _unescape(text: str) -> str:
    """Replace escape sequences, as in llama-server's command line."""
    return _ESCAPED.sub(
        lambda match: chr(int(match[1][1:], 16)) if match[1][0] == "x" else _ESCAPES.get(match[1], match[1]),
        text,
    )


def _read_breakers(given: object) -> object:
    """Strings separated by commas, or "none"."""
    if not isinstance(given, str):
        return given
    parts = [part for part in given.split(",") if part] or [","]
    return () if parts == ["none"] else tuple(map(_unescape, parts))


Samplers = Annotated[tuple[SamplerName, ...], AsWritten, BeforeValidator(by_names_or_letters)]
Breakers = Annotated[tuple[Breaker, ...], AsWritten, BeforeValidator(_read_breakers)]


class SamplingDefaults(OptionGroup):
    """Used for the fields that a request does not set."""

    n_predict: int = Field(
        -1,
        ge=-2,
        le=1 << 24,
        description="number of tokens to predict; -1: until the context is full, or with --context-shift "
        "without limit",
    )
    seed: int = Field(-1, ge=-1, le=MAX_SEED, description="RNG seed; -1: a random seed for each request")
    temperature: float = _as_in_requests("temperature", "temperature; 0: always the most likely token")
    top_k: int = _as_in_requests("top_k", "top-k sampling; 0: disabled")
    top_p: float = _as_in_requests("top_p", "top-p sampling; 1: disabled")
    min_p: float = _as_in_requests("min_p", "min-p sampling; 0: disabled")
    typical_p: float = _as_in_requests("typical_p", "locally typical sampling, parameter p; 1: disabled")
    repeat_penalty: float = _as_in_requests("repeat_penalty", "penalty for repeated tokens; 1: disabled")
    repeat_last_n: int = Field(
        64,
        ge=-1,
        le=1 << 24,
        description="last n tokens to consider for the repeat, presence and frequency penalties; -1: all "
        "tokens of the context, 0: disabled",
    )
    presence_penalty: float = _as_in_requests(
        "presence_penalty", "penalty for tokens that have occurred; 0: disabled"
    )
    frequency_penalty: float = _as_in_requests(
        "frequency_penalty", "penalty for each time that a token has occurred; 0: disabled"
    )
    dry_multiplier: float = _as_in_requests(
        "dry_multiplier", "DRY sampling multiplier, which penalizes repeated sequences; 0: disabled"
    )
    dry_base: float = Field(
        1.75,
        ge=1,
        le=1e6,
        description="DRY sampling base: factor by which the penalty grows with each repeated token",
    )
    dry_allowed_length: int = _as_in_requests(
        "dry_allowed_length", "DRY sampling: length up to which repeated sequences are not penalized"
    )
    dry_penalty_last_n: int = _as_in_requests(
        "dry_penalty_last_n",
        "last n tokens to consider for DRY sampling; -1: all tokens of the context, 0: disabled",
    )
    dry_sequence_breakers: Breakers = _as_in_requests(
        "dry_sequence_breakers",
        r"strings that end a repeated sequence for DRY, comma-separated (\x2c for a comma); none: no strings",
    )
    xtc_probability: float = _as_in_requests(
        "xtc_probability",
        "XTC sampling: probability of removing top tokens (each time a token is chosen); 0: disabled",
    )
    xtc_threshold: float = _as_in_requests(
        "xtc_threshold",
        "XTC sampling: remove all but the least likely of the tokens with at least this "
        "probability; above 0.5: disabled",
    )
    top_n_sigma: float = _as_in_requests(
        "top_n_sigma",
        "top-n-sigma sampling: keep tokens within this many standard deviations of the highest logit; -1: "
        "disabled",
    )
    dynatemp_range: float = _as_in_requests(
        "dynatemp_range",
        "dynamic temperature range: the temperature varies with the entropy by up to this much in both "
        "directions; 0: disabled",
    )
    dynatemp_exponent: float = _as_in_requests("dynatemp_exponent", "dynamic temperature exponent")
    samplers: Samplers = _as_in_requests(
        "samplers",
        "samplers in the order in which they are applied, by name (top_k;top_p;temperature) or letter (kpt)",
    )
    ignore_eos: bool = Field(False, description="ignore end-of-text tokens and continue generating")

    def parameters(self) -> dict[str, Any]:
        """The fields of `SamplingParameters` that have other defaults than there; never the seed."""
        names = SamplingDefaults.model_fields.keys() & SamplingParameters.model_fields.keys() - {"seed"}
        fields = SamplingParameters.model_fields
        return {name: value for name in names if (value := getattr(self, name)) != fields[name].default}
