"""What the front has to be told of tokens before it reads an event: their bytes, each once."""

from collections.abc import Iterable
from typing import Protocol

from lead.engine.events import Committed, Event, Pieces


class Piece(Protocol):
    """`shared.llama.vocabulary.Vocabulary.piece`."""

    def __call__(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token; control tokens are empty unless `special`."""


class NewPieces:
    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self._told: set[int] = set()

    def of(self, events: Iterable[Event]) -> list[Event]:
        """What to send before these events: one more, or nothing."""
        named = set[int]().union(*(_named(event) for event in events if isinstance(event, Committed)))
        if named <= self._told:
            return []
        new = named - self._told
        self._told |= new
        pieces = {token: self._piece(token, special=True) for token in new}
        control = [token for token, data in pieces.items() if data and not self._piece(token)]
        return [Pieces(pieces={token: data.hex() for token, data in pieces.items()}, control=control)]


def _named(event: Committed) -> set[int]:
    """All tokens that the front may want to show."""
    tops = (token for each in event.probabilities for token, _ in each.top)
    return {*event.tokens, *event.rejected, *tops}
