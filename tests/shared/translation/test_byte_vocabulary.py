import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.translation.byte_vocabulary import ByteVocabulary, ReadToken
from tests.shared.translation.toys import generator, longest_first, random_vocabulary

WORDS = longest_first([bytes([byte]) for byte in range(256)] + [b"the", b"there", b"th\xe4", "世界".encode()])


@given(st.binary(max_size=40), st.integers(0, 3))
def test_the_tokens_of_any_bytes_have_these_bytes(data, seed):
    vocabulary = random_vocabulary(generator(seed), 30)
    assert b"".join(vocabulary.pieces[token] for token in vocabulary.encode(data)) == data


LOWER = [b"", *(bytes([byte]) for byte in b"abcdefgh "), b" bad", b"face"]


def lowercase(text):
    """The tokens of `LOWER` for lowercase words; nothing for other characters."""
    return longest_first(LOWER).encode("".join(c for c in text.lower() if c in "abcdefgh ").encode())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a Bad face", [(b"a", b"a"), (b" bad", b" Bad"), (b" ", b" "), (b"face", b"face")]),
        (b"BADE", [(b"b", b"BADE"), (b"a", b""), (b"d", b""), (b"e", b"")]),
        (b"xy", [(b" ", b"x"), (b" ", b"y")]),
    ],
    ids=["as what it makes of it", "the first token stands for all", "a stand-in for nothing"],
)
def test_a_word_that_the_tokenizer_changes_is_read(data, expected):
    read = ByteVocabulary(LOWER, lowercase).read(data)
    assert [(LOWER[token], part) for token, part in read] == expected


@given(st.binary(max_size=40), st.integers(0, 3))
def test_what_is_read_stands_for_all_bytes_of_any_text(data, seed):
    rng = generator(seed)
    pieces = [piece for piece in random_vocabulary(rng, 30).pieces if rng.random() < 0.5]
    for vocabulary in (longest_first(pieces), ByteVocabulary(LOWER, lowercase), longest_first([b""])):
        read = vocabulary.read(data)
        assert b"".join(part for _, part in read) == data
        assert all(0 <= token < len(vocabulary) for token, _ in read)


def test_half_a_character_becomes_the_longest_tokens_that_fit():
    first_half = "世".encode()[:2]
    assert WORDS.encode(b"a" + first_half) == [ord("a"), *first_half]


def test_a_byte_that_no_token_has_is_read_as_a_stand_in():
    assert longest_first([b"a", b"?"]).read(b"ab") == [ReadToken(0, b"a"), ReadToken(1, b"b")]


@pytest.mark.parametrize(
    ("vocabulary", "data", "token"),
    [
        (longest_first([b"a", b"?"]), b"ab", 0),
        (longest_first([b"a", b"?"]), b"ba", None),
        (ByteVocabulary(LOWER, lowercase), b"Bad", None),
    ],
)
def test_the_first_token_of_what_can_be_begun(vocabulary, data, token):
    assert vocabulary.first(data) == token


def test_tokens_that_continue_a_text_are_a_range_of_ranks():
    first, last = WORDS.continuing(b"th")
    found = {WORDS.pieces[token] for token in range(len(WORDS)) if first <= WORDS.ranks[token] < last}
    assert found == {b"the", b"there", b"th\xe4"}


@pytest.mark.parametrize(
    ("vocabulary", "data", "expected"),
    [
        *((WORDS, b"the", True), (WORDS, b"there", False), (WORDS, b"x", False), (WORDS, b"", True)),
        (longest_first([b"\xff", b"\xff\xff", b"a"]), b"\xff", True),
    ],
)
def test_whether_a_longer_token_begins_so(vocabulary, data, expected):
    assert vocabulary.has_longer(data) is expected


@pytest.mark.parametrize(("preferred", "token"), [([], 1), ([0], 0)])
def test_of_tokens_with_the_same_bytes_the_preferred_one_or_the_tokenizers_counts(preferred, token):
    assert ByteVocabulary([b"a", b"a"], lambda _text: [1], preferred=preferred).token_of(b"a") == token


def test_a_token_without_bytes_is_never_found():
    assert longest_first([b"", b"a"]).token_of(b"") is None
