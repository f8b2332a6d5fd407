"""A drafter's sampler that guesses a simulated text as often as asked, whatever the logits are."""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lead.simulation.simulated_back import GREEDY
from lead.simulation.text import DraftSkill, Text
from shared.sampling.sampler import RankedToken, Sampler


class NamedText:
    """A simulated text in the vocabulary of a real model; `name` says which token stands for which."""

    def __init__(self, n_tokens: int, number: int, n_vocab: int) -> None:
        self.simulated = Text(n_tokens, number)
        self._n_vocab = n_vocab
        self._number = number
        self.tokens = [self.name(Text.token(position)) for position in range(n_tokens)]

    def name(self, token: int) -> int:
        """A name that is as good as random, and another one in another text."""
        return zlib.crc32(b"%d %d" % (self._number, token)) % self._n_vocab


class GuessingSampler(Sampler):
    """Takes as long as a real one; `skill` is that of the draft model it stands for."""

    def __init__(self, text: NamedText, skill: DraftSkill, history: Sequence[int]) -> None:
        self._text = text
        self._skill = skill
        self._n_tokens, self._right = 0, True
        super().__init__(GREEDY, None, history)

    def rank(self, logits: NDArray[np.float32], position: int, n: int) -> list[RankedToken]:
        super().rank(logits, position, n)
        text = self._text.simulated
        guess = (text.guesses if self._right else text.astray)(self._skill, position)[0]
        return [RankedToken(self._text.name(guess.token), guess.confidence)]

    def accept(self, token: int) -> None:
        self._right = self._right and token == self._text.tokens[self._n_tokens]
        self._n_tokens += 1

    def rewind(self, history: Sequence[int]) -> None:
        self._n_tokens, self._right = len(history), True
