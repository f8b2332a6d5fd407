"""The request fields that chat and text completions share, and what they mean for sampling."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lead.completions import random_seed
from lead.sampling_defaults import SamplingDefaults
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary
from shared.sampling import BANNED, SamplingParameters

MAX_STOPS = 32
"""Every token's text is searched for each of them."""
MAX_STOP_CHARACTERS = 1024

StopString = Annotated[str, Field(max_length=MAX_STOP_CHARACTERS)]
Bias = float | Literal[False]

_DEFAULTS = SamplingDefaults()


class StreamOptions(BaseModel):
    """OpenAI's `stream_options`."""

    include_usage: bool = False


class TextPart(BaseModel):
    """A part of a message; only text is understood."""

    model_config = ConfigDict(strict=True)

    type: Annotated[str, Field(pattern="^text$")]
    text: str


class PredictedText(BaseModel):
    """OpenAI's `prediction`: what the client thinks the answer will be, for the most part."""

    model_config = ConfigDict(strict=True)

    type: Literal["content"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class GenerationFields(BaseModel):
    """Fields that are absent or null take the default; unknown ones are ignored; types are not converted."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n_predict: int | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, Bias] | list[list[int | str | Bias]] | None = None
    ignore_eos: bool | None = None
    prediction: PredictedText | None = None
    return_speculation: bool | None = None

    def check(self) -> None:
        """Raise RequestError for what is well-formed but not served."""
        if self.n not in {None, 1}:
            raise RequestError("n: only 1 answer per request is served", "n")

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def stops(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def limit(self, defaults: SamplingDefaults = _DEFAULTS) -> int | None:
        """The most tokens to generate; None until the context is full."""
        for name in ("max_completion_tokens", "max_tokens", "n_predict"):
            value = getattr(self, name)
            if value is None or value == -1:
                continue
            if value < 1:
                raise RequestError(f"{name}: {value} is not a number of tokens (-1: no limit)", name)
            return int(value)
        return None if defaults.n_predict < 0 else defaults.n_predict

    def predicted(self, vocabulary: Vocabulary, n_ctx: int) -> list[int]:
        """The prediction as the model would write it, so without special tokens; at most `n_ctx` tokens."""
        if self.prediction is None:
            return []
        tokens = vocabulary.tokenize(self.prediction.text, add_special=False, parse_special=False)
        return tokens[:n_ctx]

    def sampling(
        self, vocabulary: Vocabulary, n_ctx: int, defaults: SamplingDefaults = _DEFAULTS
    ) -> SamplingParameters:
        """How to sample; a seed is drawn where none is given. Raises RequestError naming the field."""
        names = SamplingParameters.model_fields.keys() - {"seed", "logit_bias"}
        given = defaults.parameters()
        given |= {name: value for name in names if (value := getattr(self, name)) is not None}
        if given.get("repeat_last_n") == -1:  # llama-server's "the whole context"
            given["repeat_last_n"] = n_ctx
        seed = defaults.seed if self.seed is None else self.seed
        given["seed"] = random_seed() if seed == -1 else seed
        given["logit_bias"] = dict(self._biases(vocabulary))
        try:
            return SamplingParameters(**given)
        except ValidationError as error:
            item = error.errors()[0]
            field = str(item["loc"][0])
            raise RequestError(f"{field}: {item['msg']} (got {item['input']!r})", field) from error

    def _biases(self, vocabulary: Vocabulary) -> Iterator[tuple[int, float]]:
        if isinstance(self.logit_bias, dict):
            pairs: list[list[Any]] = [[key, value] for key, value in self.logit_bias.items()]
        else:
            pairs = self.logit_bias or []
        for pair in pairs:
            if len(pair) != 2 or isinstance(pair[1], str):  # noqa: PLR2004 - [token, bias]
                raise RequestError("logit_bias: each entry is [token, bias]", "logit_bias")
            bias = BANNED if pair[1] is False else pair[1]
            for token in _biased_tokens(pair[0], vocabulary):
                yield token, bias


def _biased_tokens(key: object, vocabulary: Vocabulary) -> list[int]:
    """A token id, also as text ("123", OpenAI's form), or the tokens of a text (llama-server's form)."""
    if isinstance(key, str) and not key.isdecimal():
        return vocabulary.tokenize(key, add_special=False, parse_special=False)
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise RequestError(f"logit_bias: {key!r} is not a token", "logit_bias")
    try:
        return [vocabulary.check(int(key))]
    except ValueError as error:
        raise RequestError(f"logit_bias: {error}", "logit_bias") from error
