"""Sampling defaults for requests: options with the names, defaults and ranges of request fields."""

import re
from collections.abc import Iterable
from copy import copy
from typing import Annotated, Any, Final

from annotated_types import Ge
from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from shared.sampling.asked_fields import with_sampling_fields
from shared.sampling.parameters import (
    DEFAULT_SAMPLERS,
    MAX_REMEMBERED,
    MAX_SEED,
    MAX_TEXT_TOKENS,
    ApiNames,
    Breaker,
    SamplerName,
    SamplingParameters,
)
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
    """Parse samplers given as letters: `"kpt"` is top_k, top_p, temperature.

    Raises ValueError for unknown and repeated letters.
    """
    return _each_once(_known(letter, _LETTERS.get(letter)) for letter in letters)


def by_names(names: Iterable[str]) -> tuple[SamplerName, ...]:
    """Parse samplers given as names, including former names of llama.cpp.

    Raises ValueError for unknown and repeated names.
    """
    return _each_once(_known(name, _NAMES.get(name.replace("-", "_"))) for name in names)


def by_names_or_letters(given: object) -> object:
    """Parse `"top_k;temperature"` or letters; values other than strings are returned unchanged.

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
        raise ValueError(f"{', '.join(twice)} can be used only once")
    return names


def _unescape(text: str) -> str:
    """Replace escape sequences, as in llama-server's command line."""
    return _ESCAPED.sub(
        lambda match: chr(int(match[1][1:], 16)) if match[1][0] == "x" else _ESCAPES.get(match[1], match[1]),
        text,
    )


def _read_breakers(given: object) -> object:
    """Parse strings separated by commas, or "none"."""
    if not isinstance(given, str):
        return given
    parts = [part for part in given.split(",") if part] or [","]
    return () if parts == ["none"] else tuple(map(_unescape, parts))


_AS_TEXT: Final[dict[str, tuple[Any, str]]] = {
    "samplers": (
        Annotated[tuple[SamplerName, ...], AsWritten, BeforeValidator(by_names_or_letters)],
        ", by name (top_k;top_p;temperature) or letter (kpt)",
    ),
    "dry_sequence_breakers": (
        Annotated[tuple[Breaker, ...], AsWritten, BeforeValidator(_read_breakers)],
        r", comma-separated (\x2c for a comma); none: no strings",
    ),
}
"""The type, and the end of the description, of each option whose value is neither a number nor a word."""


def _option(name: str, field: FieldInfo, asked: ApiNames) -> FieldInfo | None:
    """Return the option with the default and range of the request field; None: the field is no option."""
    if not asked.option:
        return None
    option = copy(field)
    if name in _AS_TEXT:
        option.annotation, how = _AS_TEXT[name]
        option.description = f"{field.description}{how}"
    if asked.minimum is not None:
        option.metadata = [Ge(asked.minimum) if isinstance(each, Ge) else each for each in field.metadata]
    return option


@with_sampling_fields(_option)
class SamplingDefaults(OptionGroup):
    """The defaults for the sampling fields that a request does not set."""

    n_predict: int = Field(
        -1,
        ge=-2,
        le=MAX_TEXT_TOKENS,
        description="number of tokens to predict; -1: until the context is full (no limit with "
        "--context-shift)",
    )
    seed: int = Field(-1, ge=-1, le=MAX_SEED, description="RNG seed; -1: a random seed for each request")

    def parameters(self) -> dict[str, Any]:
        """Return the fields of `SamplingParameters` whose defaults were changed; never the seed."""
        fields = SamplingParameters.model_fields
        given = self.model_dump(include=fields.keys() - {"seed"})
        return {name: value for name, value in given.items() if value != fields[name].default}

    def with_seed(self, seed: int) -> SamplingParameters:
        """Return the parameters of a request that sets nothing but its seed."""
        given = self.parameters()
        if given.get("repeat_last_n") == -1:
            given["repeat_last_n"] = MAX_REMEMBERED
        return SamplingParameters(seed=seed, **given)
