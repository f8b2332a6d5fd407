"""Bytes to tokens and back, for any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import TranslationError
from shared.translation.byte_vocabulary import ByteVocabulary
from tests.shared.translation.toys import generator, longest_first, random_vocabulary

WORDS = longest_first([bytes([byte]) for byte in range(256)] + [b"the", b"there", b"th\xe4", "世界".encode()])


@given(st.binary(max_size=40), st.integers(0, 3))
def test_the_tokens_of_any_bytes_have_these_bytes(data, seed):
    vocabulary = random_vocabulary(generator(seed), 30)
    assert b"".join(vocabulary.pieces[token] for token in vocabulary.encode(data)) == data


def test_a_tokenizer_that_changes_the_text_is_not_believed():
    pieces = [b"a", b"A", b"b"]
    assert ByteVocabulary(pieces, lambda text: [1] * len(text)).encode(b"ab") == [0, 2]


def test_half_a_character_becomes_the_longest_tokens_that_fit():
    first_half = "世".encode()[:2]
    assert WORDS.encode(b"a" + first_half) == [ord("a"), *first_half]


def test_bytes_that_no_token_has_are_an_error():
    with pytest.raises(TranslationError, match="0x62"):
        longest_first([b"a"]).encode(b"ab")


def test_tokens_that_continue_a_text_are_a_range_of_ranks():
    first, last = WORDS.continuing(b"th")
    assert {WORDS.pieces[token] for token in range(len(WORDS)) if first <= WORDS.ranks[token] < last} == {
        b"the",
        b"there",
        b"th\xe4",
    }


@pytest.mark.parametrize(
    ("data", "expected"), [(b"the", True), (b"there", False), (b"x", False), (b"", True)]
)
def test_whether_a_longer_token_begins_so(data, expected):
    assert WORDS.has_longer(data) is expected


def test_the_last_byte_has_a_range_too():
    assert longest_first([b"\xff", b"\xff\xff", b"a"]).has_longer(b"\xff")


def test_of_tokens_with_the_same_bytes_that_of_the_tokenizer_counts():
    assert ByteVocabulary([b"a", b"a"], lambda _text: [1]).token_of(b"a") == 1


def test_a_preferred_token_counts_before_all_others():
    assert ByteVocabulary([b"a", b"a"], lambda _text: [1], preferred=[0]).token_of(b"a") == 0


def test_a_token_without_bytes_is_never_found():
    assert longest_first([b"", b"a"]).token_of(b"") is None
