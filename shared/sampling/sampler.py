"""How the next token is chosen, on lead and back alike: llama.cpp's filters, then the coupled choice.

The choice is `argmax_i logit_i / temperature + g(seed, position, i)` over the candidates that the filters
leave (Gumbel-max: an exact sample of the filtered distribution). The text therefore depends on seed, prompt
and target model alone. This noise must never be mixed with a `u < p/q` acceptance test: that is biased.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from shared.sampling.noise import exceeding, gumbel
from shared.sampling.top_k import candidates_for_top_k, top_k

MAX_SEED = (1 << 63) - 1
BANNED = -1e9
"""A logit bias that no logit and no noise can outweigh; finite, because JSON has no infinity."""

MOST_REMEMBERED = 1 << 16
"""Further back nothing is looked for repetitions."""

_MOST_XTC = 0.5
"""With a higher threshold there can be no second candidate above it."""

_MOST_BREAKERS = 256
"""Characters of all breakers together: each is looked for in every token of the vocabulary."""

_UNCOMMON = {"dry", "top_n_sigma", "xtc"}

_FEW = 2048
"""For so few candidates noise is computed faster than it is found out which of them need any."""

_N_FAVOURITES = 64

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
    """What a client may ask of the sampling; names and defaults are llama-server's.

    The limits keep every logit finite in 32 bits whatever is combined: behind an infinity comes a NaN, which
    leaves no candidate.
    """

    model_config = ConfigDict(frozen=True)

    seed: int = Field(ge=0, le=MAX_SEED)
    temperature: Finite = Field(0.8, ge=0, le=1e6)
    top_k: int = Field(40, ge=-1, lt=1 << 31, description="0 or -1: all")
    top_p: Finite = Field(0.95, ge=0, le=1)
    min_p: Finite = Field(0.05, ge=0, le=1)
    typical_p: Finite = Field(1.0, ge=0, le=1)
    repeat_penalty: Finite = Field(1.0, ge=1e-6, le=1e6)
    repeat_last_n: int = Field(64, ge=0, le=1 << 24, description="tokens that penalties look back")
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
    grammar_start: int = Field(0, ge=0, description="the position of the first token that it is about")

    @field_validator("dry_sequence_breakers")
    @classmethod
    def _within_reason(cls, breakers: tuple[str, ...]) -> tuple[str, ...]:
        if sum(map(len, breakers)) > _MOST_BREAKERS:
            raise ValueError(f"at most {_MOST_BREAKERS} characters together")
        return breakers

    @property
    def penalties_window(self) -> int:
        """How many tokens the penalties look back."""
        return min(self.repeat_last_n, MOST_REMEMBERED)

    @property
    def dry_window(self) -> int:
        """How many tokens DRY looks back."""
        n = self.dry_penalty_last_n
        return MOST_REMEMBERED if n == -1 else min(n, MOST_REMEMBERED)

    @property
    def penalizes(self) -> bool:
        """Whether tokens that stand before make the same ones less likely."""
        return (
            "penalties" in self.samplers
            and self.repeat_last_n != 0
            and (self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0)
        )

    @property
    def dries(self) -> bool:
        """Whether sequences that stand before are made less likely to go on as they did."""
        return (
            "dry" in self.samplers
            and self.dry_multiplier > 0
            and self.dry_base >= 1
            and self.dry_penalty_last_n != 0
        )

    @property
    def n_remembered(self) -> int:
        """How many of the tokens before it a filter has to know; 0: none."""
        return max(self.penalties_window if self.penalizes else 0, self.dry_window if self.dries else 0)

    @property
    def remembers(self) -> bool:
        """Whether the choice depends on the tokens before it, beyond what the model sees."""
        return self.grammar is not None or self.n_remembered > 0

    @property
    def is_greedy(self) -> bool:
        """The likeliest candidate is taken."""
        return self.temperature == 0 and "temperature" in self.samplers

    @property
    def active_samplers(self) -> tuple[SamplerName, ...]:
        """Those of `samplers` that do anything."""
        idle = set() if self.penalizes else {"penalties"}
        idle |= set() if self.dries else {"dry"}
        idle |= {"top_n_sigma"} if self.top_n_sigma <= 0 else set()
        idle |= {"top_k"} if self.top_k <= 0 else set()
        idle |= {"typ_p"} if self.typical_p >= 1 else set()
        idle |= {"top_p"} if self.top_p >= 1 else set()
        idle |= {"min_p"} if self.min_p <= 0 else set()
        idle |= {"xtc"} if self.xtc_probability <= 0 or self.xtc_threshold > _MOST_XTC else set()
        return tuple(name for name in self.samplers if name not in idle)

    @property
    def is_common(self) -> bool:
        """Whether `shared.llama.chain.Chain` does: the filters that nearly everyone uses, in their order."""
        if self.grammar is not None or self.dynatemp_range > 0:
            return False
        active = self.active_samplers
        in_default_order = self.model_copy(update={"samplers": DEFAULT_SAMPLERS}).active_samplers
        return active == in_default_order and not _UNCOMMON & set(active)


class Filters(Protocol):
    """The seam to llama.cpp's sampler chain (`shared.llama.chain`)."""

    def apply(
        self, logits: NDArray[np.float32], position: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(ids, logits) of the candidates left; temperature is applied. Valid until the next call.

        Where all are left, in ascending order, the ids are best `every_token(n_vocab)` itself: the choice
        among them is then faster.
        """

    def accept(self, token: int) -> None:
        """Take note of a token, for the penalties."""

    def reset(self) -> None:
        """Forget all tokens."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A token and how sure it is: the softmax of its score, noise included, over the candidates.

    Not the token's probability: the noise is given, and what is uncertain is what another model's logits,
    close to these, make of it.
    """

    token: int
    confidence: float


class Sampler:
    """Chooses the tokens of one sequence.

    Knows the tokens before a choice only as far as the filters need them: `accept` each one in order,
    `rewind` when some of them turn out not to have been the sequence's.
    """

    def __init__(
        self, parameters: SamplingParameters, filters: Filters | None, history: Sequence[int]
    ) -> None:
        """`filters` is None where `needs_filters` says so; `history` is all tokens so far."""
        self._parameters = parameters
        self._filters = filters
        self._is_greedy = parameters.is_greedy
        self._n_remembered = 0 if filters is None else parameters.n_remembered
        self.rewind(history)

    def choose(self, logits: NDArray[np.float32], position: int) -> int:
        """The token at absolute `position`, from the model's logits there, shape (n_vocab,), not modified."""
        if self._filters is None:
            return int(logits.argmax())
        ids, left = self._filters.apply(logits, position)
        return self._choose_from(ids, left, position)

    def rank(self, logits: NDArray[np.float32], position: int, n: int) -> list[Choice]:
        """The `n` likeliest choices at absolute `position` (or fewer), the one that `choose` makes first.

        Under the shared noise the runners-up are what another model, whose logits differ a little, chooses.
        """
        return rank_scores(*self._scores(logits, position), n)

    def distribution(
        self, logits: NDArray[np.float32], position: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """(ids, probabilities) of the candidates that the filters leave at absolute `position`."""
        if self._filters is None:
            return np.array([logits.argmax()], np.int32), np.ones(1)
        ids, left = self._filters.apply(logits, position)
        if self._is_greedy:
            return np.array([likeliest(ids, left)], np.int32), np.ones(1)
        weights = np.exp(left.astype(np.float64) - float(left.max()))
        return ids.copy(), weights / weights.sum()

    def _choose_from(self, ids: NDArray[np.int32], left: NDArray[np.float32], position: int) -> int:
        if self._is_greedy:
            return likeliest(ids, left)
        return coupled_choice(ids, left, self._parameters.seed, position)

    def _scores(
        self, logits: NDArray[np.float32], position: int
    ) -> tuple[NDArray[np.floating[Any]], NDArray[np.int32]]:
        """(scores, ids): the largest score, of equal ones that of the lowest id, is the choice."""
        if self._filters is None:
            return logits, every_token(len(logits))
        ids, left = self._filters.apply(logits, position)
        return self._scored(ids, left, position), ids

    def _scored(
        self, ids: NDArray[np.int32], left: NDArray[np.float32], position: int
    ) -> NDArray[np.floating[Any]]:
        return left if self._is_greedy else left + gumbel(self._parameters.seed, position, ids)

    def accept(self, token: int) -> None:
        """`token` follows the tokens accepted so far."""
        if self._filters is not None and self._n_remembered:
            self._filters.accept(token)

    def rewind(self, history: Sequence[int]) -> None:
        """The tokens so far are `history` and nothing else."""
        if self._filters is None or not self._n_remembered:
            return
        self._filters.reset()
        for token in history[-self._n_remembered :]:
            self._filters.accept(token)


def needs_filters(parameters: SamplingParameters) -> bool:
    """False where the choice is the plain argmax of the logits.

    At temperature 0 top-k, top-p, min-p and top-n-sigma never remove the likeliest token; the others may.
    """
    return (
        not parameters.is_greedy
        or "typ_p" in parameters.active_samplers
        or "xtc" in parameters.active_samplers
        or bool(parameters.logit_bias)
        or parameters.ignore_eos
        or parameters.n_remembered > 0
    )


def rank_scores(scores: NDArray[np.floating[Any]], ids: NDArray[np.int32], n: int) -> list[Choice]:
    """The `n` best, the best first, of equal ones that of the lowest id."""
    ascending = ids is every_token(len(scores))
    top = top_k(scores, n) if ascending else np.lexsort((ids, -scores))[:n]
    # A hint needs no more than 32 bits, in which exp is several times as fast.
    weights = (scores - scores[top[0]]).astype(np.float32, copy=False)
    total = float(np.exp(weights, out=weights).sum())
    return [Choice(int(ids[i]), float(weights[i]) / total) for i in top]


@functools.lru_cache(maxsize=8)
def every_token(n_vocab: int) -> NDArray[np.int32]:
    """The ids of a whole vocabulary, ascending; always the same array, which cannot be written to."""
    ids = np.arange(n_vocab, dtype=np.int32)
    ids.flags.writeable = False
    return ids


def coupled_choice(
    ids: NDArray[np.int32], scaled_logits: NDArray[np.float32], seed: int, position: int
) -> int:
    """Gumbel-max under the shared noise; `scaled_logits` are already divided by the temperature."""
    if len(ids) == 1:
        return int(ids[0])
    if len(ids) > _FEW and ids is every_token(len(ids)):
        ids = _rivals(scaled_logits, seed, position)
        scaled_logits = scaled_logits[ids]
    return int(ids[np.argmax(scaled_logits + gumbel(seed, position, ids))])


def _rivals(scaled_logits: NDArray[np.float32], seed: int, position: int) -> NDArray[np.int32]:
    """A few ids, ascending, some perhaps twice; that of the largest sum of logit and noise is among them.

    With `best` the largest sum among the tokens of the largest logits, any other token needs noise of at
    least best - ceiling, ceiling being the largest logit of all these.
    """
    n = len(scaled_logits)
    favourites, ceiling = candidates_for_top_k(scaled_logits, _N_FAVOURITES)
    if len(favourites) > 8 * _N_FAVOURITES:  # many equal logits
        favourites, ceiling = favourites[:_N_FAVOURITES], float(scaled_logits.max())
    if len(favourites) < _N_FAVOURITES:  # NaNs
        return every_token(n)
    best = float((scaled_logits[favourites] + gumbel(seed, position, favourites)).max())
    if not math.isfinite(best - ceiling):
        return every_token(n)
    rivals = np.concatenate((favourites, exceeding(seed, position, n, best - ceiling)))
    rivals.sort()
    return rivals.astype(np.int32)


def likeliest(ids: NDArray[np.int32], logits: NDArray[np.floating[Any]]) -> int:
    """The candidate of the largest logit.

    The filters reorder the candidates, so a tie is settled by the lowest id, as plain argmax does.
    """
    return int(ids[logits == logits.max()].min())
