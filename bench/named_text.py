"""A simulated text in the vocabulary of a real model."""

import zlib

from lead.simulation.text import Text


class NamedText:
    """`name` says which token stands for a simulated one."""

    def __init__(self, n_tokens: int, number: int, n_vocab: int) -> None:
        self.simulated = Text(n_tokens, number)
        self._n_vocab = n_vocab
        self._number = number
        self.tokens = [self.name(Text.token(position)) for position in range(n_tokens)]

    def name(self, token: int) -> int:
        """As good as random, and another one in another text."""
        return zlib.crc32(b"%d %d" % (self._number, token)) % self._n_vocab
