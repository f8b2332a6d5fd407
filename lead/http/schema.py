"""The fields that chat and text requests share, and their conversion to sampling parameters."""

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, ValidationError

from lead.chat_format.fields import MAX_MESSAGES, MAX_STOPS, AtMost, NullIsDefault
from lead.chat_format.sampling_fields import SamplingFields
from lead.chat_format.unused_fields import OPENAI
from lead.engine_client.front_vocabulary import FrontVocabulary
from lead.http.services import Services
from lead.settings.limits import RequestLimits
from lead.settings.sampling_defaults import SamplingDefaults, by_letters, by_names
from lead.tokenizer.jobs import FieldTexts, PreparedRequest
from shared.errors import RequestError
from shared.logs import LogLevel
from shared.sampling.parameters import BANNED, MAX_SEED, SamplerName, SamplingParameters

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_MAX_ADAPTERS = 64


class StreamOptions(NullIsDefault):
    """OpenAI's `stream_options`."""

    include_usage: bool = False


class TextPart(BaseModel, strict=True):
    """A part of a predicted text; only text is supported."""

    type: Annotated[str, Field(pattern="^text$")]
    text: str


class PredictedText(BaseModel, strict=True):
    """OpenAI's `prediction`: text that the client expects the answer to resemble."""

    type: Literal["content"]
    content: str | Annotated[list[TextPart], AtMost(MAX_MESSAGES)]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class SpeculativeFields(BaseModel, strict=True):
    """llama-server's field `speculative`, written as an object."""

    n_max: int | None = None


class GenerationFields(SamplingFields, strict=True, populate_by_name=True):
    """The fields of a generation request. Absent or null fields take the default.

    Unknown fields are refused. Types are not converted.
    """

    unused: ClassVar = OPENAI

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    return_speculation: bool | None = None
    return_token_ids: bool | None = None
    n: int | None = None
    n_cmpl: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n_predict: int | None = None
    n_keep: int | None = Field(None, ge=-1)
    t_max_predict_ms: int | None = Field(None, le=1 << 53)
    stop: str | Annotated[list[str], AtMost(MAX_STOPS)] | None = None
    json_schema: dict[str, Any] | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    n_probs: int | None = None
    post_sampling_probs: bool | None = None
    prediction: PredictedText | None = None
    cache_prompt: bool | None = None
    id_slot: int | None = None
    private: bool | None = None
    lora: Annotated[list[Any], AtMost(_MAX_ADAPTERS)] | None = None
    speculative: SpeculativeFields | None = None
    speculative_n_max: int | None = Field(None, alias="speculative.n_max")

    def check(self) -> None:
        """Raise RequestError for values that are valid but not supported."""
        if self.lora:
            raise RequestError("lora: adapters cannot be set in a request. Use --lora FILE:SCALE", "lora")

    def n_answers(self, maximum: int) -> int:
        for name in ("n", "n_cmpl"):
            value = getattr(self, name)
            if value is not None:
                if not 1 <= value <= maximum:
                    raise RequestError(f"{name}: {value} is not between 1 and {maximum}", name)
                return int(value)
        return 1

    def n_alternatives(self, limits: RequestLimits) -> int | None:
        """Return the number of likely tokens to report; 0: only the chosen token; None: no probabilities."""
        maximum = limits.max_top_logprobs
        n_top = _within("top_logprobs", self.top_logprobs, maximum)
        if n_top and self.logprobs is not True:
            raise RequestError("top_logprobs: logprobs must be true", "top_logprobs")
        if self.n_probs:
            return _within("n_probs", self.n_probs, maximum)
        if isinstance(self.logprobs, bool) or self.logprobs is None:
            return n_top if self.logprobs else None
        return _within("logprobs", self.logprobs, maximum)

    def n_draft(self) -> int | None:
        """Return the maximum number of draft tokens to verify per step; None: the planner decides."""
        value = self.speculative_n_max
        if value is None and self.speculative is not None:
            value = self.speculative.n_max
        if value is not None and value < 0:
            raise RequestError(f"speculative.n_max: {value} is not a number of tokens", "speculative.n_max")
        return value

    def slot(self, n_slots: int) -> int | None:
        if self.id_slot is None or self.id_slot == -1:
            return None
        if not 0 <= self.id_slot < n_slots:
            raise RequestError(f"id_slot: {self.id_slot} is not one of the {n_slots} slots", "id_slot")
        return self.id_slot

    def stops(self, limits: RequestLimits) -> list[str]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > limits.max_stops:
            raise RequestError(
                f"stop: {len(stops)} strings are too many. The maximum is {limits.max_stops} (--max-stops)",
                "stop",
            )
        if any(len(stop) > limits.max_stop_characters for stop in stops):
            raise RequestError(
                f"stop: a string can have at most {limits.max_stop_characters} characters", "stop"
            )
        return [stop for stop in stops if stop]

    def limit(self, defaults: SamplingDefaults) -> int | None:
        """Return the maximum number of tokens to generate; 0: only read the prompt.

        None: only the context limits the answer.
        """
        for name in ("max_completion_tokens", "max_tokens", "n_predict"):
            value = getattr(self, name)
            if value is None or value in {-1, -2}:
                continue
            if value < 0:
                raise RequestError(f"{name}: {value} is not a number of tokens (-1: no limit)", name)
            return int(value)
        return None if defaults.n_predict < 0 else defaults.n_predict

    def time_limit(self) -> float | None:
        """Return the seconds that generation may take; None: no limit."""
        value = self.t_max_predict_ms
        return None if value is None or value < 0 else value / 1000

    def biases(self) -> Iterator[tuple[Any, Any]]:
        """Yield the entries of `logit_bias`: a token or text, and its bias; raises RequestError.

        `logit_bias` may be a list of entries, or an object as in OpenAI's API. A number in quotes that cannot
        be a token id ("-1", "1.5") is a text in a list, and an error in an object.
        """
        if isinstance(self.logit_bias, dict):
            for key in self.logit_bias:
                if _NUMBER.fullmatch(key) and not _is_id(key):
                    raise RequestError(f"logit_bias: {key!r} is not the id of a token", "logit_bias")
            yield from self.logit_bias.items()
            return
        for pair in self.logit_bias or ():
            if len(pair) != 2:  # noqa: PLR2004 - [token, bias]
                raise RequestError("logit_bias: each entry must be [token, bias]", "logit_bias")
            yield pair[0], pair[1]

    def shows_prompt(self, log_level: LogLevel) -> bool:  # noqa: ARG002 - only a chat asks for it
        """Return whether the response contains the prompt's text."""
        return False

    def texts(self, limits: RequestLimits) -> FieldTexts:
        """Return the texts in these fields that must be tokenized; raises RequestError."""
        if len(self.logit_bias or ()) > limits.max_logit_bias:
            raise RequestError(f"logit_bias: can have at most {limits.max_logit_bias} entries", "logit_bias")
        return FieldTexts(
            grammar=self.grammar,
            json_schema=self.json_schema,
            prediction=self.prediction.text if self.prediction else "",
            biased=tuple(key for key, _ in self.biases() if isinstance(key, str) and not _is_id(key)),
        )


def _is_id(key: str) -> bool:
    return key.isascii() and key.isdecimal()


def _within(name: str, value: int | None, maximum: int) -> int:
    """Return `value`, or 0 for None; raises RequestError unless it is between 0 and `maximum`."""
    value = value or 0
    if not 0 <= value <= maximum:
        raise RequestError(f"{name}: {value} is not between 0 and {maximum}", name)
    return value


_MAX_SHOWN_CHARACTERS = 100
_SEED_BITS = 32


def sampling_parameters(
    fields: GenerationFields, services: Services, prepared: PreparedRequest
) -> SamplingParameters:
    """Return the sampling parameters, with a random seed if none is given.

    Raises RequestError, which names the field at fault.
    """
    vocabulary, defaults = services.vocabulary, services.settings.sampling
    asked = fields.sampling()
    if asked.get("dry_base", 1) < 1:  # llama-server uses the default then
        del asked["dry_base"]
    given = defaults.parameters() | asked
    if given.get("repeat_last_n") == -1:  # llama-server's "the whole context"
        given["repeat_last_n"] = services.n_ctx
    given["seed"] = _seed(defaults.seed if fields.seed is None else fields.seed)
    given["logit_bias"] = _biases_within(
        fields, vocabulary, prepared.biased, services.settings.limits.max_logit_bias
    )
    given |= {"grammar": prepared.grammar, "calls": prepared.calls}
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
    """Return the seed. -1 draws a random one of 32 bits; other negative seeds are converted as in
    llama-server.
    """
    if given == -1:
        return secrets.randbits(_SEED_BITS)
    return given & ((1 << _SEED_BITS) - 1) if -MAX_SEED - 1 <= given < 0 else given


def _shown(value: object) -> str:
    """Return a value for an error message, cut if it is long: a number may have thousands of digits."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


def _sampler_names(given: str | list[str]) -> tuple[SamplerName, ...]:
    """Return the samplers of llama-server's field `samplers`: a list of names, or a string with a letter for
    each; raises RequestError.
    """
    try:
        return by_letters(given) if isinstance(given, str) else by_names(given)
    except ValueError as error:
        raise RequestError(f"samplers: {error}", "samplers") from error


def _biases_within(
    fields: GenerationFields, vocabulary: FrontVocabulary, biased: Mapping[str, list[int]], maximum: int
) -> dict[int, float]:
    biases = dict(_biases(fields, vocabulary, biased))
    if len(biases) > maximum:
        raise RequestError(f"logit_bias: can have at most {maximum} tokens", "logit_bias")
    return biases


def _biases(
    fields: GenerationFields, vocabulary: FrontVocabulary, biased: Mapping[str, list[int]]
) -> Iterator[tuple[int, float]]:
    for key, value in fields.biases():
        if isinstance(value, str):
            raise RequestError("logit_bias: each entry must be [token, bias]", "logit_bias")
        bias = BANNED if value is False else value
        for token in _biased_tokens(key, vocabulary, biased):
            yield token, bias


def _biased_tokens(key: object, vocabulary: FrontVocabulary, biased: Mapping[str, list[int]]) -> list[int]:
    """Return the tokens of `key`: a token id, as a number or in quotes ("123", as in OpenAI's API), or a text
    (as in llama-server); raises RequestError.
    """
    if isinstance(key, str) and key in biased:
        return biased[key]
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise RequestError(f"logit_bias: {key!r} is not a token", "logit_bias")
    try:
        return [vocabulary.check(int(key))]
    except ValueError as error:
        raise RequestError(f"logit_bias: {error}", "logit_bias") from error
