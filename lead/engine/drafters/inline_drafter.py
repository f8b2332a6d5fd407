"""The seam to drafters inside the engine that take its time: a draft model, or heads of the target."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from lead.engine.context_shift import ContextShift
from lead.engine.drafters.continuation import Continuation
from shared.sampling.parameters import SamplingParameters


class InlineRound(NamedTuple):
    """What one decode of `n_tokens` tokens gave: the whole draft of each sequence that has grown."""

    n_tokens: int
    drafts: Mapping[str, Continuation]


class InlineDrafter(Protocol):
    """Drafts for the sequences that are open, one token of each per call (`model_drafter.ModelDrafter`)."""

    source: str
    """What its drafts are called."""
    n_most: int
    """The longest draft of a sequence."""

    def open(
        self,
        sequence: str,
        sampling: SamplingParameters,
        tokens: Sequence[int],
        shift: ContextShift | None = None,
    ) -> None:
        """A sequence begins. `tokens` are its committed ones, now and later: the list only grows.

        shift: what the target sees of them when they no longer fit into its context.
        """

    def close(self, sequence: str) -> None:
        """A sequence has ended; one that is unknown has ended before."""

    def place(self, sequence: str, slot: int) -> None:
        """The target has `sequence` in this slot."""

    def n_pending(self, sequence: str) -> int | None:
        """Tokens to decode before the next token of its draft can be chosen; None: its draft cannot grow."""

    def draft(self, sequences: Sequence[str], n_most: int) -> InlineRound:
        """Go on with the drafts of `sequences`, in one decode of about `n_most` tokens.

        A sequence with many pending tokens may need several calls until its draft grows.
        """

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        """A decode of `n_tokens` took `seconds`; returns whether the next ones will take as long."""
