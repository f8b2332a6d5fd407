"""Sources of draft tokens.

lookup   in the engine, without a model: free, asked before every step (`lookup`)
inline   in the engine, with a model or heads of the target: takes its time (`model_drafter`,
`mtp_drafter`)
remote   backs, which send drafts when they have them (`shared.protocol.Draft`)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, TypeVar

from shared.sampling.parameters import SamplingParameters

Continuation = tuple[list[int], list[float]]
"""Tokens, and for each the confidence that it is right if those before it are, 0 < confidence < 1."""


class LookupDrafter(ABC):
    """A drafter without a model, for one sequence."""

    @abstractmethod
    def draft(self, tokens: Sequence[int], max_tokens: int) -> Continuation:
        """A draft of at most `max_tokens` to follow the committed `tokens`."""

    def close(self, tokens: Sequence[int]) -> None:  # noqa: B027 - most keep nothing
        """Called when the sequence has ended with the committed `tokens`."""


class InlineDraft(ABC):
    """The state of an inline drafter for one sequence."""

    @property
    @abstractmethod
    def n_pending(self) -> int | None:
        """Tokens to decode before the next token of the draft can be chosen; None: the draft cannot grow."""

    @property
    @abstractmethod
    def continuation(self) -> Continuation:
        """The current draft."""

    def place(self, slot: int, context: Sequence[int]) -> None:  # noqa: B027 - most have slots of their own
        """Called when the target has the sequence in this slot, and sees `context` of it.

        The list `context` grows with the sequence; a context shift replaces it.
        """

    @abstractmethod
    def leave(self) -> None:
        """Called when the sequence has left its slot: it has ended, or waits to be placed again."""


D = TypeVar("D", bound=InlineDraft)


class InlineDrafter(Protocol[D]):
    """A drafter for the sequences that are open, one token of each per call."""

    source: str
    """What its drafts are called."""
    n_max: int
    """The longest draft of a sequence."""

    def open(self, sequence: str, sampling: SamplingParameters, tokens: Sequence[int]) -> D:
        """Begin a sequence. `tokens` are its committed tokens, now and later: the list only grows."""

    def draft(self, drafts: Sequence[D], n_max: int) -> tuple[int, Sequence[D]]:
        """Extend `drafts`, which it has opened, in one decode of about `n_max` tokens.

        Returns the number of tokens in the decode, and the drafts that have grown. A draft with many pending
        tokens may need several calls until it grows.
        """

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        """Called after a round: a decode of `n_tokens` that took `seconds`.

        Returns whether rounds of as many tokens usually take as long; False if this one may also have moved
        texts, or tried another number of threads.
        """
