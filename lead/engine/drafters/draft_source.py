"""Sources of draft tokens.

* lookup: in the engine, without a model; costs almost nothing, so it is asked before every step (`lookup`)
* inline: in the engine, with a model or heads of the target; takes engine time (`model_drafter`,
  `mtp_drafter`)
* remote: in a back, which sends drafts whenever it has some (`shared.protocol.Draft`)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, TypeVar

from shared.sampling.parameters import SamplingParameters

Continuation = tuple[list[int], list[float]]
"""Tokens, and the confidence that each is right if all before it are: 0 < confidence < 1."""


class LookupDrafter(ABC):
    """A drafter without a model, for one sequence."""

    @abstractmethod
    def draft(self, tokens: Sequence[int], max_tokens: int) -> Continuation:
        """Return a draft of at most `max_tokens` tokens that follow the committed `tokens`."""

    def close(self, tokens: Sequence[int]) -> None:  # noqa: B027 - most keep nothing
        """Handle the end of the sequence; `tokens` are all its committed tokens."""


class InlineDraft(ABC):
    """The state of an inline drafter for one sequence."""

    @property
    @abstractmethod
    def n_pending(self) -> int | None:
        """The number of tokens to decode before the draft can grow by one; None: it cannot grow."""

    @property
    @abstractmethod
    def continuation(self) -> Continuation:
        """The draft after the text so far."""

    def place(self, slot: int, context: Sequence[int]) -> None:  # noqa: B027 - most have slots of their own
        """Handle placement in a slot of the target; `context` is the part of the text that the target sees.

        The list `context` grows with the sequence; a context shift replaces it by another list.
        """

    @abstractmethod
    def leave(self) -> None:
        """Handle the sequence leaving its slot, because it has ended or waits to be placed again."""


D = TypeVar("D", bound=InlineDraft)


class InlineDrafter(Protocol[D]):
    """A drafter for all open sequences: each call of `draft` adds at most one token to each draft."""

    source: str
    """The name that its draft tokens carry."""
    n_max: int
    """The maximum length of a draft."""

    def open(self, sequence: str, sampling: SamplingParameters, tokens: Sequence[int]) -> D:
        """Begin a sequence and return its draft. The list `tokens` has its committed tokens, and
        only grows.
        """

    def draft(self, drafts: Sequence[D], n_max: int) -> tuple[int, Sequence[D]]:
        """Extend `drafts` in one decode of about `n_max` tokens.

        Returns the number of tokens in the decode, and the drafts that have grown. A draft with many pending
        tokens may need several calls to grow.
        """

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        """Record that a round decoded `n_tokens` tokens in `seconds`; return whether this time is typical.

        The time is not typical if the round also moved texts, or tried another number of threads.
        """
