"""Sources: who proposes draft tokens.

lookup   in the engine, without a model: free, asked before every step (`lookup`)
inline   in the engine, with a model or heads of the target: takes its time (`model_drafter`, `mtp_drafter`)
remote   backs, which send their drafts when they have them (`shared.protocol.Draft`)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, TypeVar

from shared.sampling.parameters import SamplingParameters

Continuation = tuple[list[int], list[float]]
"""Tokens, and for each the confidence that it is right if those before it are, 0 < confidence < 1."""


class LookupDrafter(ABC):
    """Drafts for one sequence."""

    @abstractmethod
    def draft(self, tokens: Sequence[int], max_tokens: int) -> Continuation:
        """What may follow the committed `tokens`; at most `max_tokens`."""

    def close(self, tokens: Sequence[int]) -> None:  # noqa: B027 - most keep nothing
        """The sequence has ended with the committed `tokens`."""


class InlineDraft(ABC):
    """What an inline drafter knows of one sequence."""

    @property
    @abstractmethod
    def n_pending(self) -> int | None:
        """Tokens to decode before the next token of the draft can be chosen; None: the draft cannot grow."""

    @property
    @abstractmethod
    def continuation(self) -> Continuation:
        """The draft."""

    def place(self, slot: int, context: Sequence[int]) -> None:  # noqa: B027 - most have slots of their own
        """The target has the sequence in this slot, and sees `context` of it.

        That is a list that grows with the sequence, and another one after a context shift.
        """

    @abstractmethod
    def leave(self) -> None:
        """The sequence has left its slot: it has ended, or waits, and is placed in one again."""


D = TypeVar("D", bound=InlineDraft)


class InlineDrafter(Protocol[D]):
    """Drafts for the sequences that are open, one token of each per call."""

    source: str
    """What its drafts are called."""
    n_max: int
    """The longest draft of a sequence."""

    def open(self, sequence: str, sampling: SamplingParameters, tokens: Sequence[int]) -> D:
        """A sequence begins. `tokens` are its committed ones, now and later: the list only grows."""

    def draft(self, drafts: Sequence[D], n_max: int) -> tuple[int, Sequence[D]]:
        """Go on with `drafts`, which it has opened, in one decode of about `n_max` tokens.

        Returns the number of tokens in the decode, and the drafts that have grown. A draft with many pending
        tokens may need several calls until it grows.
        """

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        """A decode of `n_tokens` took `seconds`; returns whether the next ones will take as long."""
