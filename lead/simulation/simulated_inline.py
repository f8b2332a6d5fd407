"""A simulated draft model inside the lead's engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lead.engine.commands import DRAFT_MODEL
from lead.engine.context_shift import ContextShift
from lead.engine.drafters.inline_drafter import InlineRound
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import Guess, Text
from shared.sampling.parameters import SamplingParameters

_N_MOST = 16


@dataclass(slots=True)
class _InlineSequence:
    """`drafted` follows the first `base` tokens; the first `n_cached` of both together are decoded."""

    text: Text
    tokens: Sequence[int]
    base: int = 0
    n_cached: int = 0
    drafted: list[Guess] = field(default_factory=list)

    def sync(self) -> None:
        new = self.tokens[self.base :]
        n_right = 0
        while n_right < min(len(new), len(self.drafted)) and self.drafted[n_right].token == new[n_right]:
            n_right += 1
        if n_right < len(new):
            self.n_cached = min(self.n_cached, self.base + n_right)
            self.drafted = []
        else:
            self.drafted = self.drafted[n_right:]
        self.base = len(self.tokens)

    @property
    def end(self) -> int:
        return self.base + len(self.drafted)


class SimulatedInlineDrafter:
    """An `InlineDrafter`; `texts` are those of the sequences. `seconds` says how long a round takes."""

    source = DRAFT_MODEL
    n_most = _N_MOST

    def __init__(self, spec: BackSpec, texts: dict[str, Text]) -> None:
        self._spec = spec
        self._texts = texts
        self._followed: dict[str, _InlineSequence] = {}

    def seconds(self, n_tokens: int) -> float:
        """Of a decode of so many tokens."""
        return self._spec.step_s * (1 + self._spec.slope * (n_tokens - 1))

    def open(
        self,
        sequence: str,
        _sampling: SamplingParameters,
        tokens: Sequence[int],
        _shift: ContextShift | None = None,
    ) -> None:
        self._followed[sequence] = _InlineSequence(self._texts[sequence], tokens)

    def close(self, sequence: str) -> None:
        self._followed.pop(sequence, None)

    def place(self, sequence: str, slot: int) -> None:
        """It needs no slots."""

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        """One round is like another."""
        del n_tokens, seconds
        return True

    def n_pending(self, sequence: str) -> int | None:
        followed = self._followed[sequence]
        followed.sync()
        if len(followed.drafted) >= self.n_most or followed.end >= followed.text.n_tokens:
            return None
        return followed.end - followed.n_cached

    def draft(self, sequences: Sequence[str], _n_most: int) -> InlineRound:
        n_tokens = sum(self.n_pending(sequence) or 0 for sequence in sequences)
        for sequence in sequences:
            self._extend(self._followed[sequence])
        return InlineRound(n_tokens, {sequence: self._draft(sequence) for sequence in sequences})

    def _extend(self, followed: _InlineSequence) -> None:
        followed.n_cached = followed.end
        right = all(each.token == Text.token(followed.base + i) for i, each in enumerate(followed.drafted))
        guesses = followed.text.guesses if right else followed.text.astray
        followed.drafted.append(guesses(self._spec.skill, followed.end)[0])

    def _draft(self, sequence: str) -> tuple[list[int], list[float]]:
        drafted = self._followed[sequence].drafted
        return [each.token for each in drafted], [each.confidence for each in drafted]
