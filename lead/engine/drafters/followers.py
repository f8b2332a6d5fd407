"""Guesses where padding would be decoded, from what followed the last token before."""

from collections.abc import Sequence


class Followers:
    """The token that followed a token the last time: a cheap guess, for places in a batch that cost nothing.

    One equal token is too little for a draft (`lookup.SHORTEST_MATCH`), but better than padding. For one
    sequence, whose text only grows; no copy of it is kept.
    """

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._n_seen = 1

    def follow(self, tokens: Sequence[int], last: int, n: int) -> list[int]:
        """At most `n` guesses at what follows `last`, from what followed in `tokens`, the whole text."""
        for at in range(self._n_seen, len(tokens)):
            self._next[tokens[at - 1]] = tokens[at]
        self._n_seen = max(self._n_seen, len(tokens))
        guesses: list[int] = []
        while len(guesses) < n and (guess := self._next.get(last)) is not None:
            guesses.append(guess)
            last = guess
        return guesses
