import asyncio
from types import SimpleNamespace

import pytest

from lead.engine.events import Pieces
from lead.engine_client.front_vocabulary import FrontVocabulary, KnownPieces
from shared.errors import RequestError, UnavailableError
from shared.protocol import VocabularyId

ID = VocabularyId(fingerprint="f", n_tokens=4, model="m")


def front(identify=None):
    model = SimpleNamespace(info=SimpleNamespace(n_vocab=4), bos=1, adds_bos=True)
    return FrontVocabulary(model, KnownPieces(), identify)


def test_a_piece_is_what_the_engine_said():
    known = KnownPieces()
    known.learn(Pieces(first=7, pieces=[b"\xff\n".hex()]))
    known.learn(Pieces(first=8, pieces=[b"x".hex()]))
    assert known.piece(7) == known.piece(7, special=True) == b"\xff\n"


def test_a_control_token_is_shown_only_where_that_is_wanted():
    known = KnownPieces()
    known.learn(Pieces(first=1, pieces=["", b"<end>".hex()], control=[2]))
    assert known.piece(2) == b""
    assert known.piece(2, special=True) == b"<end>"


@pytest.mark.parametrize("token", [-1, 4])
def test_a_token_outside_the_vocabulary_is_refused(token):
    with pytest.raises(ValueError, match="not in the vocabulary of 4"):
        front().check(token)


async def test_the_vocabulary_is_identified_once_for_all_who_ask():
    asked = []

    async def identify():
        asked.append(1)
        await asyncio.sleep(0)
        return ID

    vocabulary = front(identify)
    assert await asyncio.gather(vocabulary.identify(), vocabulary.identify()) == [ID, ID]
    assert asked == [1]


async def test_a_vocabulary_that_takes_too_long_to_identify_is_no_fault_of_a_request():
    async def identify():
        raise RequestError("takes more than 0.1 s of CPU time (--prepare-seconds)")

    with pytest.raises(UnavailableError, match="--prepare-seconds"):
        await front(identify).identify()
