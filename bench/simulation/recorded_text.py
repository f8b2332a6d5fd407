"""Texts of the shipped pair, for the simulation: what the target wrote, what the draft model said."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.model_pair import ModelPair, next_logits
from bench.prompts import draw
from lead.simulation.text import DraftSkill, Guess, Text
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler

KINDS = ("stories", "knowledge", "code")
_N_RANKED = 3
_N_ASTRAY = 6
"""Tokens that are drafted behind a wrong one, for their confidences."""
_LEAST = 1e-6


class RecordedPosition(NamedTuple):
    """The draft model's first choices, best first: whether each is the target's, and their confidences.

    astray: confidences of what it would draft behind a wrong first choice; empty after a right one.
    """

    right: tuple[bool, ...]
    confidences: tuple[float, ...]
    astray: tuple[tuple[float, ...], ...] = ()


class RecordedText(Text):
    """Any draft model (`DraftSkill`) says what was recorded."""

    def __init__(self, positions: Sequence[RecordedPosition]) -> None:
        super().__init__(len(positions) + 1, 0)
        self._positions = positions
        self._astray = [each for position in positions for each in position.astray] or [(0.5, 0.3, 0.1)]

    def guesses(self, skill: DraftSkill, position: int) -> tuple[Guess, ...]:
        recorded = self._positions[position - 1]
        wrong = self.astray(skill, position)
        return tuple(
            Guess(self.token(position) if right else other.token, confidence)
            for right, confidence, other in zip(recorded.right, recorded.confidences, wrong, strict=True)
        )

    def astray(self, _skill: DraftSkill, position: int) -> tuple[Guess, ...]:
        confidences = self._astray[position * 7 % len(self._astray)]
        return tuple(Guess(-self.token(position) - i, each) for i, each in enumerate(confidences, 1))


class KnowingText(RecordedText):
    """The same, but the draft model is sure of what is right, and of nothing else."""

    def __init__(self, positions: Sequence[RecordedPosition]) -> None:
        super().__init__([each._replace(confidences=_known(each.right), astray=()) for each in positions])
        self._astray = [_known((False,) * _N_RANKED)]


def _known(right: Sequence[bool]) -> tuple[float, ...]:
    return tuple(0.999 if each else 0.001 for each in right)


class PairRecorder:
    """The two models, decoding the same texts."""

    def __init__(self, target: Path, draft: Path) -> None:
        self._pair = ModelPair(target, draft)

    def record(self, temperature: float, n_each: int, n_tokens: int) -> list[list[RecordedPosition]]:
        """`n_each` texts of each kind of prompts, of up to `n_tokens` tokens, without truncation."""
        return [
            list(self._positions(prompt.text, prompt.seed, temperature, n_tokens))
            for prompt in draw(KINDS, n_each, seed=1)
        ]

    def _positions(
        self, prompt: str, seed: int, temperature: float, n_tokens: int
    ) -> Iterator[RecordedPosition]:
        parameters = SamplingParameters(seed=seed, temperature=temperature, top_k=0, top_p=1, min_p=0)
        for tokens, sampler, _, draft, chosen in self._pair.positions(prompt, parameters, n_tokens):
            ranked = sampler.rank(draft, len(tokens), _N_RANKED)
            right = tuple(each.token == chosen for each in ranked)
            astray = () if right[0] else self._go_astray(sampler, [*tokens, ranked[0].token])
            yield RecordedPosition(right, tuple(max(_LEAST, each.confidence) for each in ranked), astray)

    def _go_astray(self, sampler: Sampler, tokens: list[int]) -> tuple[tuple[float, ...], ...]:
        """Confidences behind the last of `tokens`, which is wrong and not yet decoded."""
        n_done, confidences = len(tokens) - 1, []
        for n in range(_N_ASTRAY):
            ranked = sampler.rank(next_logits(self._pair.draft, tokens, n_done + n), len(tokens), _N_RANKED)
            confidences.append(tuple(max(_LEAST, each.confidence) for each in ranked))
            tokens.append(ranked[0].token)
        self._pair.draft.trim(0, n_done)
        return tuple(confidences)
