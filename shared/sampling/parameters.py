"""How a client asks for tokens to be sampled: names, defaults and limits."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

MAX_SEED = (1 << 63) - 1
BANNED = -1e9
"""A logit bias that no logit and no noise can compensate; finite, because JSON has no infinity."""

MOST_REMEMBERED = 1 << 16
"""The maximum number of last tokens that penalties and DRY consider."""

_MOST_XTC = 0.5
"""Above this threshold at most one candidate can reach it, so XTC never removes any."""

_MOST_BREAKERS = 256
"""Characters of all breakers together; llama.cpp searches every token of the vocabulary for each."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Bias = Annotated[float, Field(ge=BANNED, le=-BANNED, allow_inf_nan=False)]


SamplerName = Literal[
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"
]
DEFAULT_SAMPLERS: tuple[SamplerName, ...] = (
    *("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"),
)
"""llama-server's order."""

Breaker = Annotated[str, Field(min_length=1, max_length=40)]


class SamplingParameters(BaseModel):
    """Sampling parameters of a request; names and defaults are llama-server's.

    The limits keep every logit finite in 32 bits for any combination. An infinity would turn into a NaN, and
    a NaN leaves no candidate.
    """

    model_config = ConfigDict(frozen=True)

    seed: int = Field(ge=0, le=MAX_SEED)
    temperature: Finite = Field(0.8, ge=0, le=1e6)
    top_k: int = Field(40, ge=-1, lt=1 << 31, description="0 or -1: off")
    top_p: Finite = Field(0.95, ge=0, le=1)
    min_p: Finite = Field(0.05, ge=0, le=1)
    typical_p: Finite = Field(1.0, ge=0, le=1)
    repeat_penalty: Finite = Field(1.0, ge=1e-6, le=1e6)
    repeat_last_n: int = Field(
        64, ge=0, le=1 << 24, description="number of last tokens that penalties consider"
    )
    presence_penalty: Finite = Field(0.0, ge=-1e6, le=1e6)
    frequency_penalty: Finite = Field(0.0, ge=-1e6, le=1e6)
    logit_bias: dict[int, Bias] = Field(default_factory=dict, max_length=1 << 16)
    ignore_eos: bool = False
    dry_multiplier: Finite = Field(0.0, ge=0, le=1e6, description="0: no penalty for repeated sequences")
    dry_base: Finite = Field(1.75, ge=0, le=1e6)
    dry_allowed_length: int = Field(2, ge=0, le=1 << 24)
    dry_penalty_last_n: int = Field(-1, ge=-1, le=1 << 24, description="-1: all tokens")
    dry_sequence_breakers: tuple[Breaker, ...] = Field(("\n", ":", '"', "*"), max_length=32)
    xtc_probability: Finite = Field(0.0, ge=0, le=1)
    xtc_threshold: Finite = Field(0.1, ge=0, le=1, description="more than 0.5: off")
    top_n_sigma: Finite = Field(-1.0, ge=-1, le=1e6, description="0 or less: off")
    dynatemp_range: Finite = Field(0.0, ge=0, le=1e6)
    dynatemp_exponent: Finite = Field(1.0, ge=0, le=1e6)
    samplers: tuple[SamplerName, ...] = Field(DEFAULT_SAMPLERS, max_length=32)
    grammar: str | None = Field(None, description="a grammar in llguidance's Lark")
    grammar_start: int = Field(
        0, ge=0, description="the position of the first token that the grammar applies to"
    )

    @field_validator("dry_sequence_breakers")
    @classmethod
    def _within_reason(cls, breakers: tuple[str, ...]) -> tuple[str, ...]:
        if sum(map(len, breakers)) > _MOST_BREAKERS:
            raise ValueError(f"at most {_MOST_BREAKERS} characters together")
        return breakers

    def biases(self, n_vocab: int, end_tokens: frozenset[int]) -> dict[int, float]:
        """What to add to the logits of which tokens: `logit_bias`, and the ban of end tokens."""
        biases = {token: value for token, value in self.logit_bias.items() if 0 <= token < n_vocab}
        return biases | dict.fromkeys(end_tokens, BANNED) if self.ignore_eos else biases

    @property
    def penalties_window(self) -> int:
        return min(self.repeat_last_n, MOST_REMEMBERED)

    @property
    def dry_window(self) -> int:
        n = self.dry_penalty_last_n
        return MOST_REMEMBERED if n == -1 else min(n, MOST_REMEMBERED)

    @property
    def penalizes(self) -> bool:
        return (
            "penalties" in self.samplers
            and self.repeat_last_n != 0
            and (self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0)
        )

    @property
    def dries(self) -> bool:
        """Whether DRY, the penalty for repeated sequences, is on."""
        return (
            "dry" in self.samplers
            and self.dry_multiplier > 0
            and self.dry_base >= 1
            and self.dry_penalty_last_n != 0
        )

    @property
    def n_remembered(self) -> int:
        """Previous tokens that the filters need to know."""
        return max(self.penalties_window if self.penalizes else 0, self.dry_window if self.dries else 0)

    @property
    def remembers(self) -> bool:
        """Whether the choice depends on previous tokens by more than the model's logits."""
        return self.grammar is not None or self.n_remembered > 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 and "temperature" in self.samplers

    @property
    def active_samplers(self) -> tuple[SamplerName, ...]:
        """Those of `samplers` that have an effect with these parameters."""
        idle = set() if self.penalizes else {"penalties"}
        idle |= set() if self.dries else {"dry"}
        idle |= {"top_n_sigma"} if self.top_n_sigma <= 0 else set()
        idle |= {"top_k"} if self.top_k <= 0 else set()
        idle |= {"typ_p"} if self.typical_p >= 1 else set()
        idle |= {"top_p"} if self.top_p >= 1 else set()
        idle |= {"min_p"} if self.min_p <= 0 else set()
        idle |= {"xtc"} if self.xtc_probability <= 0 or self.xtc_threshold > _MOST_XTC else set()
        return tuple(name for name in self.samplers if name not in idle)
