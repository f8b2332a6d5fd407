"""What a back has been sent of the sequences, and the messages for what it has not.

They are computed from cursors when they are sent: a back that is slow or disconnected costs no memory, and
gets what it has missed in few messages.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from lead.generation.sequences import LiveSequence, Sequences
from shared.protocol import MAX_TOKENS_PER_MESSAGE, Close, Extend, LeadMessage, Open, Tune


@dataclass(slots=True)
class _Sent:
    """`n_tokens`: how many committed tokens of each open sequence."""

    n_tokens: dict[str, int] = field(default_factory=dict)
    tune: Tune | None = None

    def copy(self) -> "_Sent":
        return _Sent(dict(self.n_tokens), self.tune)


class Updates:
    def __init__(self, max_sequences: int) -> None:
        """The back drafts for at most `max_sequences` at the same time."""
        self._max_sequences = max_sequences
        self._sent = _Sent()
        self._acknowledged = _Sent()  # by the last reply that is known to have arrived
        self._n_replies = 0

    @property
    def n_open(self) -> int:
        """The number of sequences that the back drafts for."""
        return len(self._sent.n_tokens)

    def has_open(self, sequence_id: str) -> bool:
        """Whether this sequence has been opened for the back and not yet closed."""
        return sequence_id in self._sent.n_tokens

    def take(self, sequences: Sequences, tune: Tune | None, asked: Collection[str]) -> list[LeadMessage]:
        """All messages since the last call; empty if nothing has changed.

        The tokens of sequences that are not `asked` are sent when they are again.
        """
        messages: list[LeadMessage] = []
        if tune is not None and tune != self._sent.tune:
            self._sent.tune = tune
            messages.append(tune)
        cursors = self._sent.n_tokens
        for sequence_id in [open_id for open_id in cursors if sequences.get(open_id) is None]:
            del cursors[sequence_id]
            messages.append(Close(sequence=sequence_id, reason="ended"))
        for sequence in sequences:
            if sequence.id in asked:
                messages += self._messages_of(sequence)
        return messages

    def _messages_of(self, sequence: LiveSequence) -> list[LeadMessage]:
        cursors = self._sent.n_tokens
        messages: list[LeadMessage] = []
        if sequence.id not in cursors:
            if len(cursors) >= self._max_sequences:
                return []
            messages.append(_open(sequence))
            cursors[sequence.id] = min(len(sequence.tokens), MAX_TOKENS_PER_MESSAGE)
        messages += _extensions(sequence, cursors[sequence.id])
        cursors[sequence.id] = len(sequence.tokens)
        return messages

    def acknowledge(self, reply: int | None) -> None:
        """The last reply that has arrived is number `reply`; later ones are sent again.

        None: the back does not number them, and all are taken to have arrived.
        """
        if reply in {None, self._n_replies}:
            self._acknowledged = self._sent.copy()
        else:
            self._sent = self._acknowledged.copy()

    def number_reply(self) -> int:
        """The number of the next reply, counted from 1."""
        self._n_replies += 1
        return self._n_replies


def _open(sequence: LiveSequence) -> Open:
    tokens = sequence.tokens[:MAX_TOKENS_PER_MESSAGE].tolist()
    return Open(sequence=sequence.id, sampling=sequence.request.sampling, tokens=tokens)


def _extensions(sequence: LiveSequence, start: int) -> list[Extend]:
    return [
        Extend(
            sequence=sequence.id, start=at, tokens=sequence.tokens[at : at + MAX_TOKENS_PER_MESSAGE].tolist()
        )
        for at in range(start, len(sequence.tokens), MAX_TOKENS_PER_MESSAGE)
    ]
