"""From a request's fields to the parameters of its sampling."""

import secrets
from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from lead.http.schema import GenerationFields
from lead.server.services import Services
from lead.settings.sampler_names import by_letters, by_names
from lead.tokenizer.jobs import PreparedRequest
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary
from shared.sampling.parameters import BANNED, MAX_SEED, SamplerName, SamplingParameters

_MAX_SHOWN_CHARACTERS = 100
_SEED_BITS = 32
_PLAIN_FIELDS = tuple(
    SamplingParameters.model_fields.keys()
    - {"seed", "logit_bias", "samplers", "dry_sequence_breakers", "grammar", "grammar_start"}
)
"""The fields that are parameters of the same name and meaning."""


def sampling_parameters(
    fields: GenerationFields, services: Services, prepared: PreparedRequest
) -> SamplingParameters:
    """How to sample; a seed is drawn if none is given. Raises RequestError naming the field at fault."""
    vocabulary, defaults = services.vocabulary, services.defaults
    given = defaults.parameters()
    given |= {name: value for name in _PLAIN_FIELDS if (value := getattr(fields, name)) is not None}
    if given.get("repeat_last_n") == -1:  # llama-server's "the whole context"
        given["repeat_last_n"] = services.admission.n_ctx
    if given.get("dry_base", 1) < 1:  # llama-server uses the default then
        given["dry_base"] = defaults.dry_base
    given["seed"] = _seed(defaults.seed if fields.seed is None else fields.seed)
    given["logit_bias"] = _biases_within(fields, vocabulary, prepared.biased, services.limits.max_logit_bias)
    given["grammar"] = prepared.grammar
    if fields.samplers is not None:
        given["samplers"] = _sampler_names(fields.samplers)
    if fields.dry_sequence_breakers is not None:
        given["dry_sequence_breakers"] = tuple(fields.dry_sequence_breakers)
    try:
        return SamplingParameters(**given)
    except ValidationError as error:
        item = error.errors()[0]
        field = str(item["loc"][0])
        raise RequestError(f"{field}: {item['msg']} (got {_shown(item['input'])})", field) from error


def _seed(given: int) -> int:
    """-1 draws one, small enough for any client's integers; others below 0 become one, as in llama-server."""
    if given == -1:
        return secrets.randbits(_SEED_BITS)
    return given & ((1 << _SEED_BITS) - 1) if -MAX_SEED - 1 <= given < 0 else given


def _shown(value: object) -> str:
    """A value for an error message: a number may have thousands of digits."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


def _sampler_names(given: str | list[str]) -> tuple[SamplerName, ...]:
    """llama-server's `samplers`: names, or one letter each."""
    try:
        return by_letters(given) if isinstance(given, str) else by_names(given)
    except ValueError as error:
        raise RequestError(f"samplers: {error}", "samplers") from error


def _biases_within(
    fields: GenerationFields, vocabulary: Vocabulary, biased: Mapping[str, list[int]], most: int
) -> dict[int, float]:
    biases = dict(_biases(fields, vocabulary, biased))
    if len(biases) > most:
        raise RequestError(f"logit_bias: at most {most} tokens are accepted", "logit_bias")
    return biases


def _biases(
    fields: GenerationFields, vocabulary: Vocabulary, biased: Mapping[str, list[int]]
) -> Iterator[tuple[int, float]]:
    for key, value in fields.biases():
        if isinstance(value, str):
            raise RequestError("logit_bias: each entry is [token, bias]", "logit_bias")
        bias = BANNED if value is False else value
        for token in _biased_tokens(key, vocabulary, biased):
            yield token, bias


def _biased_tokens(key: object, vocabulary: Vocabulary, biased: Mapping[str, list[int]]) -> list[int]:
    """A token id, as a number or as text ("123", OpenAI's form), or the tokens of a text (llama-server's)."""
    if isinstance(key, str) and key in biased:
        return biased[key]
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise RequestError(f"logit_bias: {key!r} is not a token", "logit_bias")
    try:
        return [vocabulary.check(int(key))]
    except ValueError as error:
        raise RequestError(f"logit_bias: {error}", "logit_bias") from error
