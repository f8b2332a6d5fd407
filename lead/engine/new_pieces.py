"""The bytes of tokens, which the front needs before it reads an event; each token's bytes are sent once."""

from collections.abc import Iterable

from lead.engine.events import Committed, Event, Pieces
from shared.llama.vocabulary import Vocabulary

_N_TOGETHER = 256
"""The pieces of this many neighboring ids are sent together, because frequent tokens have neighboring ids."""


class NewPieces:
    """Tracks which tokens' bytes the front already has."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._sent: set[int] = set()  # numbers of blocks of _N_TOGETHER tokens

    def of(self, events: Iterable[Event]) -> list[Event]:
        """Return the `Pieces` events to send before these events."""
        named = (token for event in events if isinstance(event, Committed) for token in _named(event))
        new = {token // _N_TOGETHER for token in named} - self._sent
        self._sent |= new
        return [self._block(number) for number in sorted(new)]

    def _block(self, number: int) -> Pieces:
        first, piece = number * _N_TOGETHER, self._vocabulary.piece
        tokens = range(first, min(first + _N_TOGETHER, self._vocabulary.n_tokens))
        control = [token for token in tokens if not piece(token)]
        return Pieces(
            first=first, pieces=[piece(token, special=True).hex() for token in tokens], control=control
        )


def _named(event: Committed) -> set[int]:
    """Return all tokens that the front may show."""
    tops = (token for each in event.probabilities for token, _ in each.top)
    return {*event.tokens, *event.rejected, *tops}
