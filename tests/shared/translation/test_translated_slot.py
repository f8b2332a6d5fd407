"""The tokens of a text that are decoded, and when."""

import numpy as np
import pytest

from shared.llama.memory_traits import PLAIN
from shared.translation.byte_vocabulary import ByteVocabulary
from shared.translation.projection import Projection
from shared.translation.translated_slot import NOTHING, TranslatedSlot
from tests.shared.translation.toys import longest_first

DRAFT = longest_first([bytes([byte]) for byte in range(256)] + [b" the", b" theater", b"ater", b" of"])
TARGET = longest_first(
    [bytes([byte]) for byte in range(256)] + [b" the", b" theater", b" there", b" o", b"at"]
)
ROOM = 1000


def slot(prefix=()):
    return TranslatedSlot(0, PLAIN, Projection(DRAFT, TARGET), prefix)


def token(vocabulary, piece):
    return vocabulary.token_of(piece)


def logits(**expected):
    row = np.full(len(DRAFT), -30.0, np.float32)
    for piece, probability in expected.items():
        row[token(DRAFT, piece.replace("_", " ").encode())] = np.log(probability)
    return row


def append(text, *pieces):
    text.append([token(TARGET, piece) for piece in pieces])


def decode(text, *rows, unfinished=False):
    """Carry out the plan. `rows` are the logits of the last tokens."""
    feed = text.plan(unfinished=unfinished, n_room=ROOM)
    tokens = text.cut(feed)
    text.decoded.cache.take_edits()
    if tokens:
        text.add(tokens, np.array(rows or [logits(_of=1.0)] * feed.n_logits)[-max(1, feed.n_logits) :])
    text.check_integrity()
    return [DRAFT.pieces[each] for each, _ in tokens]


def test_the_prefix_comes_first():
    text = slot(prefix=[token(DRAFT, b"x")])
    append(text, b"a")
    assert decode(text) == [b"x", b"a"]


def test_a_text_without_bytes_is_only_the_prefix():
    text = slot(prefix=[token(DRAFT, b"x")])
    assert decode(text) == [b"x"]


def test_without_anything_to_decode_nothing_is_decoded():
    text = slot()
    assert decode(text) == []
    assert np.isfinite(text.lattice().logits()).all()


def test_the_end_of_an_unfinished_prompt_waits():
    text = slot()
    append(text, *[b" the"] * 9)
    assert decode(text, unfinished=True) == [b" the"] * 5


def test_what_an_unfinished_prompt_has_removed_is_decoded_again():
    text = slot()
    append(text, b"x")
    decode(text, logits(_the=0.9))
    append(text, b" the")
    assert decode(text) == [b" the"]
    assert decode(text, unfinished=True) == []
    assert decode(text) == [b" the"]


def test_an_unexpected_text_is_cut_anew_from_the_last_word():
    text = slot()
    append(text, b"a", b" the")
    decode(text, logits(_the=1.0), logits(_of=1.0))
    append(text, b"at", b"e", b"r")
    assert decode(text) == [b" theater"]
    assert text.decoded.data == b"a theater"


@pytest.mark.parametrize(
    ("chances", "chosen", "room", "found"),
    [
        ({"_the": 0.9, "_of": 0.1}, b" the", ROOM, [(token(DRAFT, b" the"), b" the")]),
        ({"_of": 1.0}, b" o", ROOM, None),
        ({"_the": 0.9, "_of": 0.1}, b" the", 1, None),
    ],
    ids=["goes on where a longer token begins so", "ends where none does", "ends with the context"],
)
def test_a_look_ahead(chances, chosen, room, found):
    text = slot()
    append(text, b"a")
    decode(text, logits(**chances))
    ahead = text.look_ahead(token(TARGET, chosen), room)
    assert ahead == NOTHING if found is None else ahead.tokens == found


def test_no_look_ahead_where_the_draft_model_would_have_chosen_the_longer_token():
    target = longest_first([piece for piece in TARGET.pieces if piece != b" there"])
    text = TranslatedSlot(0, PLAIN, Projection(DRAFT, target), [])
    text.append([token(target, b"a")])
    decode(text, logits(_the=0.9, _theater=0.1))
    assert text.look_ahead(token(target, b" the"), ROOM) == NOTHING


def test_a_chosen_token_is_not_the_beginning_of_a_draft_token_that_is_a_token_of_the_target_too():
    text = slot()
    append(text, b"a")
    decode(text, logits(_the=0.5, _theater=0.5))
    append(text, b" the")
    assert decode(text) == [b" the"]


def test_a_text_cut_back_to_what_was_decoded_repeats_the_last_token():
    text = slot()
    append(text, b" the", *[b" theater"] * 8)
    decode(text)
    text.keep(1)
    assert decode(text) == [b" the"]


def test_a_prompt_longer_than_the_context_is_decoded_from_its_end():
    text = slot()
    append(text, *[b" theater"] * 50)
    feed = text.plan(unfinished=False, n_room=20)
    assert len(feed.tokens) <= 20


def test_a_text_that_ends_before_the_base_begins_anew():
    text = slot()
    append(text, *[b" theater"] * 50)
    feed = text.plan(unfinished=False, n_room=20)
    text.add(text.cut(feed), np.zeros((feed.n_logits, len(DRAFT)), np.float32))
    text.keep(1)
    assert decode(text) == [b" theater"]


SMALL = longest_first([bytes([byte]) for byte in b" xabcdef"])
LOWER = ByteVocabulary(SMALL.pieces, lambda text: SMALL.encode(text.lower().encode()))


def lowercase_slot(data):
    text = TranslatedSlot(0, PLAIN, Projection(LOWER, TARGET), [])
    append(text, *(bytes([byte]) for byte in data))
    return text


def test_words_with_more_tokens_than_bytes_leave_room_in_a_full_context():
    wordy = ByteVocabulary(
        SMALL.pieces, lambda text: SMALL.encode(text.replace("x", "abcdefabcdef").encode())
    )
    text = TranslatedSlot(0, PLAIN, Projection(wordy, TARGET), [])
    append(text, *[b" ", b"x"] * 100)
    assert 0 < len(text.plan(unfinished=False, n_room=30).tokens) <= 30


def test_a_word_that_is_read_otherwise_is_not_cut_at_the_end_of_an_unfinished_prompt():
    feed = lowercase_slot(b"x ABCDEF").plan(unfinished=True, n_room=ROOM)
    assert [part for _, part in feed.tokens] == [b"x"]


def test_a_word_that_is_read_otherwise_is_read_again_when_it_goes_on():
    text = lowercase_slot(b" A")
    only_x = np.log(np.where(np.array(LOWER.pieces) == b"x", 1.0, 1e-9)).astype(np.float32)
    for read in ([(b" ", b" A"), (b"a", b"")], [(b" ", b" Ab"), (b"a", b""), (b"b", b"")]):
        feed = text.plan(unfinished=False, n_room=ROOM)
        tokens = text.cut(feed)
        assert [(LOWER.pieces[token], part) for token, part in tokens] == read
        text.decoded.cache.take_edits()
        text.add(tokens, np.tile(only_x, (feed.n_logits, 1)))
        text.check_integrity()
        append(text, b"b")
