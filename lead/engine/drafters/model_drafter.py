"""A draft model in the engine's process: the drafter that backs have, called between two steps.

It hears of committed tokens when it is asked to draft, not before: a sequence for which no draft is worth its
time costs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lead.engine.context_shift import ContextShift
from lead.engine.drafters.inline_drafter import InlineRound
from lead.engine.drafters.thread_choice import ThreadChoice
from shared.drafting.drafter import Drafter
from shared.protocol import Close, Extend, Open
from shared.sampling.parameters import SamplingParameters


@dataclass(slots=True)
class _Followed:
    """`tokens` are all committed ones. The drafter knows the first `n_told`; 0: it has not heard of it."""

    sampling: SamplingParameters
    tokens: Sequence[int]
    n_told: int = 0


class ModelDrafter:
    """An `InlineDrafter`."""

    def __init__(
        self, source: str, drafter: Drafter, n_most: int, threads: ThreadChoice | None = None
    ) -> None:
        """`drafter` has no side branches: nothing is drafted while the target computes.

        threads: of its model; None: always the same number.
        """
        self.source = source
        self.n_most = n_most
        self._drafter = drafter
        self._threads = threads
        self._followed: dict[str, _Followed] = {}
        self._has_opened = False

    def open(
        self,
        sequence: str,
        sampling: SamplingParameters,
        tokens: Sequence[int],
        _shift: ContextShift | None = None,
    ) -> None:
        self._followed[sequence] = _Followed(sampling, tokens)

    def close(self, sequence: str) -> None:
        followed = self._followed.pop(sequence, None)
        if followed and followed.n_told:
            self._drafter.handle(Close(sequence=sequence, reason="ended"))

    def place(self, sequence: str, slot: int) -> None:
        """It has slots of its own."""

    def n_pending(self, sequence: str) -> int | None:
        followed = self._followed.get(sequence)
        if followed is None:
            return None
        if followed.n_told == 0:
            return len(followed.tokens)
        self._tell(sequence, followed)
        return self._drafter.n_pending(sequence) if self._drafter.can_extend(sequence) else None

    def draft(self, sequences: Sequence[str], n_most: int) -> InlineRound:
        for sequence in sequences:
            self._followed[sequence] = self._followed.pop(sequence)  # the last ones from now on
        self._has_opened = any(self._followed[sequence].n_told == 0 for sequence in sequences)
        for sequence in sequences:
            self._bring_up_to_date(sequence, self._followed[sequence])
        n_before = sum(self._n_pending_now(sequence) for sequence in sequences)
        grown = [sequence.id for sequence in self._drafter.step(sequences, n_most)]
        return InlineRound(
            min(n_before, max(n_most, len(sequences))), {each: self._draft(each) for each in grown}
        )

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        if self._has_opened or self._drafter.has_moved:  # texts were stored or loaded, too
            return False
        return self._threads is None or self._threads.on_round(n_tokens, seconds)

    def _n_pending_now(self, sequence: str) -> int:
        return self._drafter.n_pending(sequence) if self._drafter.follows(sequence) else 0

    def _bring_up_to_date(self, sequence: str, followed: _Followed) -> None:
        if followed.n_told:
            self._tell(sequence, followed)
            return
        if self._drafter.is_full:
            self._give_up_another()
        followed.n_told = len(followed.tokens)
        self._drafter.handle(
            Open(sequence=sequence, sampling=followed.sampling, tokens=list(followed.tokens))
        )

    def _give_up_another(self) -> None:
        """Forget the sequence that was not drafted for the longest: it may wait in the queue again.

        Should it go on, its draft is begun anew.
        """
        for sequence, followed in self._followed.items():
            if followed.n_told and self._drafter.follows(sequence):
                self._drafter.handle(Close(sequence=sequence, reason="ended"))
                followed.n_told = 0
                return

    def _tell(self, sequence: str, followed: _Followed) -> None:
        """A sequence that the drafter has given up stays so: then nothing happens."""
        if new := followed.tokens[followed.n_told :]:
            self._drafter.handle(Extend(sequence=sequence, start=followed.n_told, tokens=list(new)))
            followed.n_told += len(new)

    def _draft(self, sequence: str) -> tuple[list[int], list[float]]:
        drafted = self._drafter.drafted(sequence)
        return [each.token for each in drafted], [each.confidence for each in drafted]
