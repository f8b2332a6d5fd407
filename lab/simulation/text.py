"""Simulated texts: the token at each position, and the guesses of draft models.

Positions are hard or easy for a draft model: the chance of a right guess is Beta distributed. The confidence
is this chance with noise. Tokens are numbers without meaning; after a wrong token all guesses are wrong.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from shared.sampling.sampler import RankedToken

_SPREAD = 1.3
"""a + b of the Beta distribution of chances: below 2 most positions are either easy or hard."""
_NOISE = 0.8
"""Standard deviation of a confidence, in logits."""
_RECALL = (0.28, 0.09)
"""Shares of recovered tokens that are the draft model's second and third choice, as with the shipped pair."""
CHAT_RECALL = (0.246, 0.114, 0.077, 0.062, *[0.033] * 4, *[0.0154] * 8)
"""The same for SmolLM2 and its draft model in chats at temperature 0.8, by `models/smollm2/acceptance.py`."""
_ALIKE = 0.8
"""The correlation of a position's hardness between draft models."""
_STRIDE = 1024
_ASTRAY = 512
"""The number of tokens that a position has, and the first of those that are drafted after a wrong token."""
_MAX_CHOICES = 24
"""The number of a position's tokens for each draft model alone. There are at most 21 draft models."""


@dataclass(frozen=True, slots=True)
class DraftSkill:
    """The quality of a draft model: backs with equal skills run the same model and guess the same.

    `honest` False: it is as confident as a good model, and always wrong. `recall`: the shares of recovered
    tokens that are its first runner-up, its second, …, at most 20.
    """

    acceptance: float
    number: int = 0
    honest: bool = True
    recall: tuple[float, ...] = _RECALL


class Text:
    """The text that the target generates in a sequence of `n_tokens` tokens."""

    def __init__(self, n_tokens: int, seed: int) -> None:
        self.n_tokens = n_tokens
        self._seed = seed
        rng = np.random.default_rng([seed, 0])
        self._hardness = rng.normal(size=n_tokens)
        self._luck = rng.random(n_tokens)
        self._guesses: dict[DraftSkill, list[tuple[RankedToken, ...]]] = {}

    @staticmethod
    def token(position: int) -> int:
        return position * _STRIDE

    def guesses(self, skill: DraftSkill, position: int) -> tuple[RankedToken, ...]:
        """Return a draft model's candidates at a position if all tokens before it are right: best first, at
        least two.
        """
        if skill not in self._guesses:
            self._guesses[skill] = self._draw(skill)
        return self._guesses[skill][position]

    def astray(self, skill: DraftSkill, position: int) -> tuple[RankedToken, ...]:
        """Return a draft model's candidates if some token before the position is wrong.

        All are wrong, with the same confidences as right ones.
        """
        guesses = self.guesses(skill, (position * 7 + 3) % self.n_tokens)
        astray = position * _STRIDE + _ASTRAY
        return tuple(RankedToken(astray + i, each.confidence) for i, each in enumerate(guesses))

    def _draw(self, skill: DraftSkill) -> list[tuple[RankedToken, ...]]:
        n = self.n_tokens
        rng = np.random.default_rng([self._seed, 1 + skill.number])
        chances = self._chances(skill.acceptance, rng)
        luck = np.where(rng.random(n) < _ALIKE, self._luck, rng.random(n))
        right = (luck < chances) & skill.honest
        logits = np.log(chances / (1 - chances)) + rng.normal(scale=_NOISE, size=n)
        second = rng.random(n)
        share = rng.uniform(0.3, 0.8, n)
        return [
            _guesses(skill, i, right=bool(right[i]), logit=logits[i], second=second[i], share=share[i])
            for i in range(n)
        ]

    def _chances(self, acceptance: float, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the probabilities of right guesses: Beta distributed, lower at harder positions."""
        drawn = np.sort(rng.beta(acceptance * _SPREAD, (1 - acceptance) * _SPREAD, self.n_tokens))
        drawn += acceptance - drawn.mean()  # no luck of the draw between cells that are compared
        hardness = _ALIKE * self._hardness + math.sqrt(1 - _ALIKE**2) * rng.normal(size=self.n_tokens)
        chances = np.empty(self.n_tokens)
        chances[np.argsort(hardness)] = np.clip(drawn, 0.001, 0.999)
        return chances


def _guesses(
    skill: DraftSkill, position: int, *, right: bool, logit: float, second: float, share: float
) -> tuple[RankedToken, ...]:
    """Return the ranked tokens of a guess.

    second: selects the runner-up that is right if the first choice is not. share: the runner-up's part of
    the remaining confidence.
    """
    confidence = 1 / (1 + math.exp(-logit))
    n_runners_up = len(skill.recall)
    true, own = Text.token(position), position * _STRIDE + 1 + _MAX_CHOICES * skill.number
    tokens = [true if right else own, *range(own + 1, own + 1 + n_runners_up)]
    rank = 1 + bisect_right(list(accumulate(skill.recall)), second)
    if not right and skill.honest and rank <= n_runners_up:
        tokens[rank] = true
    rest = 1 - confidence
    confidences = (confidence, *(rest * share * (1 - share) ** i for i in range(n_runners_up)))
    return tuple(RankedToken(token, max(1e-6, c)) for token, c in zip(tokens, confidences, strict=True))
