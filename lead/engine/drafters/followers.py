"""Guesses in place of padding: the token that followed the last token before."""

from collections.abc import Sequence


class Followers:
    """The token that followed each token the last time: a cheap guess, for places in a batch that cost
    nothing.

    One equal token is too little for a draft (`lookup.SHORTEST_MATCH`), but better than padding. For one
    sequence, whose text only grows; no copy of it is kept.
    """

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._n_seen = 1

    def follow(self, tokens: Sequence[int], last: int, n: int) -> list[int]:
        """At most `n` guesses for the tokens after `last`, from the whole text `tokens`."""
        for at in range(self._n_seen, len(tokens)):
            self._next[tokens[at - 1]] = tokens[at]
        self._n_seen = max(self._n_seen, len(tokens))
        guesses: list[int] = []
        while len(guesses) < n and (guess := self._next.get(last)) is not None:
            guesses.append(guess)
            last = guess
        return guesses
