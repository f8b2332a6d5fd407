"""Sampling parameters of clients: names, defaults and limits, defined only here."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from shared.sampling.call_grammars import CallGrammars

MAX_SEED = (1 << 63) - 1
MAX_TEXT_TOKENS = 1 << 24
"""The maximum length of a text, prompt included: text without end would fill the memory."""
BANNED = -1e9
"""A logit bias that no logit and no noise can compensate; finite, because JSON has no infinity."""

MAX_REMEMBERED = 1 << 16
"""The maximum number of last tokens that penalties and DRY consider."""

_MAX_XTC = 0.5
"""The maximum XTC threshold with an effect: at most one candidate can reach a larger threshold, so XTC never
removes any.
"""

_MAX_BREAKERS = 256
"""The maximum number of characters of all breakers; llama.cpp searches every token for each breaker."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Bias = Annotated[float, Field(ge=BANNED, le=-BANNED, allow_inf_nan=False)]


SamplerName = Literal[
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"
]
DEFAULT_SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)
"""The filters in llama-server's order."""

Breaker = Annotated[str, Field(min_length=1, max_length=40)]


@dataclass(frozen=True, slots=True)
class ApiNames:
    """A parameter's names in every API, as metadata of its field.

    option: the lead has an option of that name. spellings, variables: llama-server's other names of that
    option, and its environment variables. minimum: the option's lower bound, if it differs from the
    parameter's. in_chat: the terminal client has the parameter.
    """

    option: bool = True
    spellings: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    minimum: int | None = None
    in_chat: bool = False


class SamplingParameters(BaseModel):
    """Sampling parameters of a request; names and defaults are llama-server's.

    This is their only table. A parameter annotated with `ApiNames` becomes a field of the requests of all
    APIs, an option, and a parameter of chat (`shared.sampling.asked_fields`). Drafts follow all of them. A
    sampler that drafts cannot follow is missing here, and requests that name it are refused.

    The limits keep every logit finite in 32 bits for any combination. An infinity would turn into a NaN, and
    a NaN leaves no candidate.
    """

    model_config = ConfigDict(frozen=True)

    temperature: Annotated[
        Finite, ApiNames(spellings=("--temp",), variables=("LLAMA_ARG_TEMPERATURE",), in_chat=True)
    ] = Field(0.8, ge=0, le=1e6, description="temperature; 0: always the most likely token")
    top_k: Annotated[int, ApiNames(variables=("LLAMA_ARG_TOP_K",), in_chat=True)] = Field(
        40, ge=-1, lt=1 << 31, description="top-k sampling; 0 or -1: disabled"
    )
    top_p: Annotated[Finite, ApiNames(variables=("LLAMA_ARG_TOP_P",), in_chat=True)] = Field(
        0.95, ge=0, le=1, description="top-p sampling; 1: disabled"
    )
    min_p: Annotated[Finite, ApiNames(variables=("LLAMA_ARG_MIN_P",), in_chat=True)] = Field(
        0.05, ge=0, le=1, description="min-p sampling; 0: disabled"
    )
    typical_p: Annotated[Finite, ApiNames(spellings=("--typical",), in_chat=True)] = Field(
        1.0, ge=0, le=1, description="locally typical sampling, parameter p; 1: disabled"
    )
    repeat_penalty: Annotated[Finite, ApiNames(variables=("LLAMA_ARG_REPEAT_PENALTY",), in_chat=True)] = (
        Field(1.0, ge=1e-6, le=1e6, description="penalty for repeated tokens; 1: disabled")
    )
    repeat_last_n: Annotated[int, ApiNames(minimum=-1)] = Field(
        64,
        ge=0,
        le=MAX_TEXT_TOKENS,
        description="number of last tokens to which the repeat, presence and frequency penalties apply; "
        "-1: all tokens of the context, 0: disabled",
    )
    presence_penalty: Annotated[Finite, ApiNames(variables=("LLAMA_ARG_PRESENCE_PENALTY",), in_chat=True)] = (
        Field(0.0, ge=-1e6, le=1e6, description="penalty for tokens that have occurred; 0: disabled")
    )
    frequency_penalty: Annotated[
        Finite, ApiNames(variables=("LLAMA_ARG_FREQUENCY_PENALTY",), in_chat=True)
    ] = Field(
        0.0,
        ge=-1e6,
        le=1e6,
        description="penalty for each time that a token has occurred; 0: disabled",
    )
    seed: Annotated[int, ApiNames(spellings=("-s",), in_chat=True)] = Field(
        ge=0, le=MAX_SEED, description="RNG seed; the same seed gives the same text"
    )
    dry_multiplier: Annotated[Finite, ApiNames()] = Field(
        0.0,
        ge=0,
        le=1e6,
        description="DRY sampling: strength of the penalty for repeated sequences; 0: disabled",
    )
    dry_base: Annotated[Finite, ApiNames(minimum=1)] = Field(
        1.75,
        ge=0,
        le=1e6,
        description="DRY sampling: factor by which the penalty grows with each repeated token",
    )
    dry_allowed_length: Annotated[int, ApiNames()] = Field(
        2,
        ge=0,
        le=MAX_TEXT_TOKENS,
        description="DRY sampling: maximum length of repeated sequences without a penalty",
    )
    dry_penalty_last_n: Annotated[int, ApiNames()] = Field(
        -1,
        ge=-1,
        le=MAX_TEXT_TOKENS,
        description="number of last tokens to which DRY sampling applies; -1: all tokens of the context, "
        "0: disabled",
    )
    dry_sequence_breakers: Annotated[tuple[Breaker, ...], ApiNames(spellings=("--dry-sequence-breaker",))] = (
        Field(
            ("\n", ":", '"', "*"), max_length=32, description="strings that end a repeated sequence for DRY"
        )
    )
    xtc_probability: Annotated[Finite, ApiNames()] = Field(
        0.0,
        ge=0,
        le=1,
        description="XTC sampling: probability, for each token, of removing the top tokens; 0: disabled",
    )
    xtc_threshold: Annotated[Finite, ApiNames()] = Field(
        0.1,
        ge=0,
        le=1,
        description="XTC sampling: of the tokens with at least this probability, remove all except the "
        "least likely; above 0.5: disabled",
    )
    top_n_sigma: Annotated[Finite, ApiNames(spellings=("--top-nsigma",))] = Field(
        -1.0,
        ge=-1,
        le=1e6,
        description="top-n-sigma sampling: keep tokens within this many standard deviations of the highest "
        "logit; -1: disabled",
    )
    dynatemp_range: Annotated[Finite, ApiNames()] = Field(
        0.0,
        ge=0,
        le=1e6,
        description="dynamic temperature: maximum change of the temperature, up or down, with the "
        "entropy; 0: disabled",
    )
    dynatemp_exponent: Annotated[Finite, ApiNames(spellings=("--dynatemp-exp",))] = Field(
        1.0, ge=0, le=1e6, description="dynamic temperature exponent"
    )
    samplers: Annotated[tuple[SamplerName, ...], ApiNames(spellings=("--sampler-seq", "--sampling-seq"))] = (
        Field(DEFAULT_SAMPLERS, max_length=32, description="samplers, in order")
    )
    ignore_eos: Annotated[bool, ApiNames()] = Field(
        False, description="ignore end-of-text tokens and continue generating"
    )
    logit_bias: Annotated[dict[int, Bias], ApiNames(option=False)] = Field(
        default_factory=dict, max_length=1 << 16, description="numbers to add to the logits of tokens"
    )
    grammar: Annotated[str | None, ApiNames(option=False)] = Field(
        None, description="a grammar in llguidance's Lark"
    )
    calls: SkipJsonSchema[CallGrammars | None] = Field(
        None, description="grammars of tool calls, in an answer without another grammar; not sent to backs"
    )
    grammar_start: int = Field(
        0, ge=0, description="the position of the first token that the grammar applies to"
    )

    @field_validator("dry_sequence_breakers")
    @classmethod
    def _within_reason(cls, breakers: tuple[str, ...]) -> tuple[str, ...]:
        if sum(map(len, breakers)) > _MAX_BREAKERS:
            raise ValueError(f"can have at most {_MAX_BREAKERS} characters in total")
        return breakers

    def biases(self, n_vocab: int, end_tokens: frozenset[int]) -> dict[int, float]:
        """Return the numbers to add to logits, by token: `logit_bias`, and the ban of end tokens."""
        biases = {token: value for token, value in self.logit_bias.items() if 0 <= token < n_vocab}
        return biases | dict.fromkeys(end_tokens, BANNED) if self.ignore_eos else biases

    @property
    def penalties_window(self) -> int:
        return min(self.repeat_last_n, MAX_REMEMBERED)

    @property
    def dry_window(self) -> int:
        n = self.dry_penalty_last_n
        return MAX_REMEMBERED if n == -1 else min(n, MAX_REMEMBERED)

    @property
    def penalizes(self) -> bool:
        return (
            "penalties" in self.samplers
            and self.repeat_last_n != 0
            and (self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0)
        )

    @property
    def dries(self) -> bool:
        """True if DRY, the penalty for repeated sequences, is on."""
        return (
            "dry" in self.samplers
            and self.dry_multiplier > 0
            and self.dry_base >= 1
            and self.dry_penalty_last_n != 0
        )

    @property
    def n_remembered(self) -> int:
        """The number of previous tokens that the filters need."""
        return max(self.penalties_window if self.penalizes else 0, self.dry_window if self.dries else 0)

    @property
    def remembers(self) -> bool:
        """True if the choice depends on previous tokens other than through the model's logits."""
        return self.is_constrained or self.n_remembered > 0

    @property
    def for_backs(self) -> Self:
        """The parameters for backs, without grammars of calls: these rarely change a choice, but are long."""
        return self if self.calls is None else self.model_copy(update={"calls": None})

    @property
    def is_constrained(self) -> bool:
        """True if a grammar may rule out tokens."""
        return self.grammar is not None or self.calls is not None

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 and "temperature" in self.samplers

    @property
    def active_samplers(self) -> tuple[SamplerName, ...]:
        """The filters of `samplers` that have an effect with these parameters."""
        idle = set() if self.penalizes else {"penalties"}
        idle |= set() if self.dries else {"dry"}
        idle |= {"top_n_sigma"} if self.top_n_sigma <= 0 else set()
        idle |= {"top_k"} if self.top_k <= 0 else set()
        idle |= {"typ_p"} if self.typical_p >= 1 else set()
        idle |= {"top_p"} if self.top_p >= 1 else set()
        idle |= {"min_p"} if self.min_p <= 0 else set()
        idle |= {"xtc"} if self.xtc_probability <= 0 or self.xtc_threshold > _MAX_XTC else set()
        return tuple(name for name in self.samplers if name not in idle)
