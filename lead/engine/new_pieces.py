"""The bytes of tokens that the front needs before it reads an event, each sent once."""

from collections.abc import Iterable

from lead.engine.events import Committed, Event, Pieces
from shared.llama.vocabulary import Vocabulary

_N_TOGETHER = 256
"""Tokens with neighbouring ids are told together: frequent ones are, so few events come between others."""


class NewPieces:
    """Tracks the tokens whose bytes the front already has."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._told: set[int] = set()  # numbers of blocks of _N_TOGETHER tokens

    def of(self, events: Iterable[Event]) -> list[Event]:
        """The `Pieces` events to send before these events."""
        named = (token for event in events if isinstance(event, Committed) for token in _named(event))
        new = {token // _N_TOGETHER for token in named} - self._told
        self._told |= new
        return [self._block(number) for number in sorted(new)]

    def _block(self, number: int) -> Pieces:
        first, piece = number * _N_TOGETHER, self._vocabulary.piece
        tokens = range(first, min(first + _N_TOGETHER, self._vocabulary.n_tokens))
        control = [token for token in tokens if not piece(token)]
        return Pieces(
            first=first, pieces=[piece(token, special=True).hex() for token in tokens], control=control
        )


def _named(event: Committed) -> set[int]:
    """All tokens that the front may want to show."""
    tops = (token for each in event.probabilities for token, _ in each.top)
    return {*event.tokens, *event.rejected, *tops}
