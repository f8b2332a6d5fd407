"""The front is told the bytes of each token once, before it has to show them."""

from lead.engine.events import Alive, Committed, TokenProbabilities
from lead.engine.new_pieces import NewPieces


def letter(token, *, special=False):
    """Tokens are letters; the first ten are control tokens."""
    return bytes([token]) if special or token >= 10 else b""


def told(pieces, *events):
    return [
        {int(token): bytes.fromhex(data) for token, data in each.pieces.items()} for each in pieces.of(events)
    ]


def committed(tokens, **more):
    return Committed(sequence="s", start=0, tokens=tokens, **more)


def test_tokens_are_told_when_they_come_for_the_first_time():
    pieces = NewPieces(letter)
    assert told(pieces, committed([65, 66]), committed([66])) == [{65: b"A", 66: b"B"}]
    assert told(pieces, committed([66, 67])) == [{67: b"C"}]
    assert told(pieces, committed([65, 67])) == []


def test_rejected_and_likely_tokens_are_told_too():
    top = TokenProbabilities(chosen=0.5, top=[(65, 0.5), (68, 0.2)])
    event = committed([65], rejected=[66], probabilities=[top])
    assert told(NewPieces(letter), event) == [{65: b"A", 66: b"B", 68: b"D"}]


def test_control_tokens_are_told_apart():
    (event,) = NewPieces(letter).of([committed([3, 65])])
    assert event.control == [3]


def test_other_events_name_no_tokens():
    assert NewPieces(letter).of([Alive()]) == []
