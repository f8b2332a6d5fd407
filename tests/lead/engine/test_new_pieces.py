"""The front gets the bytes of each token once, before it has to show them."""

import pytest

from lead.engine.events import Alive, Committed, TokenProbabilities
from lead.engine.new_pieces import NewPieces


class Numbers:
    """A vocabulary in which a token's piece is its number. Tokens 3 and 4 are control tokens."""

    n_tokens = 600

    def piece(self, token, *, special=False):
        return b"" if token in {3, 4} and not special else b"%d" % token


@pytest.fixture
def pieces():
    return NewPieces(Numbers())


def told(pieces, *events):
    """The first and the last token of each event."""
    found = pieces.of(events)
    for each in found:
        assert [bytes.fromhex(data) for data in each.pieces[:2]] == [b"%d" % (each.first + i) for i in (0, 1)]
    return [(each.first, each.first + len(each.pieces) - 1) for each in found]


def committed(tokens, **more):
    return Committed(sequence="s", start=0, tokens=tokens, **more)


def test_a_token_is_told_with_its_neighbors_when_it_comes_for_the_first_time(pieces):
    assert told(pieces, committed([7, 300]), committed([8])) == [(0, 255), (256, 511)]
    assert told(pieces, committed([9, 301])) == []


def test_the_last_tokens_of_a_vocabulary_are_fewer(pieces):
    assert told(pieces, committed([520])) == [(512, 599)]


@pytest.mark.parametrize(
    "more",
    [{"rejected": [300]}, {"probabilities": [TokenProbabilities(chosen=0.5, top=[(5, 0.5), (300, 0.2)])]}],
)
def test_rejected_and_likely_tokens_are_told_too(pieces, more):
    assert told(pieces, committed([5], **more)) == [(0, 255), (256, 511)]


def test_control_tokens_are_told_apart(pieces):
    assert [each.control for each in pieces.of([committed([5, 300])])] == [[3, 4], []]


def test_other_events_name_no_tokens(pieces):
    assert pieces.of([Alive()]) == []
