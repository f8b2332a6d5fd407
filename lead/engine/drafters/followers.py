"""Guesses draft tokens to fill padding: after each token, the one that followed it last time."""

from collections.abc import Sequence


class Followers:
    """Maps each token to the token that followed it most recently in one growing text.

    A match of a single token is too short for a draft (`lookup.SHORTEST_MATCH`). But a guess costs no more
    than padding, and is better. Keeps no copy of the text.
    """

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._n_seen = 1

    def follow(self, tokens: Sequence[int], last: int, n: int) -> list[int]:
        """Return at most `n` guessed tokens after the token `last`; `tokens` is the whole text."""
        for at in range(self._n_seen, len(tokens)):
            self._next[tokens[at - 1]] = tokens[at]
        self._n_seen = max(self._n_seen, len(tokens))
        guesses: list[int] = []
        while len(guesses) < n and (guess := self._next.get(last)) is not None:
            guesses.append(guess)
            last = guess
        return guesses
