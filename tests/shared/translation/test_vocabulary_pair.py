"""Real vocabularies: byte-level BPE of two sizes and SentencePiece."""

from functools import cache
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.llama.vocabulary import Vocabulary
from shared.translation.vocabulary_pair import (
    added_bos,
    byte_vocabulary,
    match_control_tokens,
    prefix_of,
    vocabulary_pair,
)

PAIRS = list(permutations(("shipped", "gpt2", "llama2c"), 2))
TEXT = "Once upon a time, the hen\n\n\tand the wolf: 12 + 345. Hé! 世界 😀 it's  x{}\r\n"


@pytest.fixture(scope="module")
def pair(vocabularies):
    return cache(lambda draft, target: vocabulary_pair(vocabularies[draft], vocabularies[target]))


@pytest.mark.parametrize(("draft", "target"), PAIRS)
def test_a_text_keeps_its_bytes_from_one_vocabulary_to_the_other(pair, draft, target):
    projection = pair(draft, target)
    data = TEXT.encode()
    for _ in range(2):
        data = b"".join(projection.target.pieces[token] for token in projection.target.encode(data))
        data = b"".join(projection.draft.pieces[token] for token in projection.draft.encode(data))
    assert data == TEXT.encode()


@given(text=st.text(max_size=30))
def test_any_text_keeps_its_bytes(pair, text):
    for vocabulary in (pair("llama2c", "shipped").draft, pair("llama2c", "shipped").target):
        assert (
            b"".join(vocabulary.pieces[token] for token in vocabulary.encode(text.encode())) == text.encode()
        )


def test_a_leading_blank_of_sentencepiece_is_not_part_of_a_text(pair):
    draft = pair("llama2c", "shipped").draft
    assert [draft.pieces[token] for token in draft.encode(b"Once upon")] == [b"Once", b" upon"]


@pytest.mark.parametrize(("draft", "target"), PAIRS)
def test_nearly_every_draft_token_has_a_projection(pair, draft, target):
    projection = pair(draft, target)
    without = [
        piece
        for piece, token in zip(projection.draft.pieces, projection.whole.tolist(), strict=True)
        if token < 0
    ]
    assert len(set(without)) <= 0.01 * len(projection.draft)


@pytest.mark.parametrize(("draft", "target"), PAIRS)
def test_the_end_of_a_turn_is_one_of_the_other_model(vocabularies, pair, draft, target):
    projection = pair(draft, target)
    ours, theirs = vocabularies[draft], vocabularies[target]
    assert projection.whole[ours.turn_end] == theirs.turn_end
    (end,) = projection.draft.encode(projection.target.pieces[theirs.turn_end])
    assert end in ours.end_tokens


def test_a_control_token_without_counterpart_is_read_as_text(vocabularies, pair):
    start = vocabularies["shipped"].special_tokens["<|im_start|>"]
    assert pair("gpt2", "shipped").target.pieces[start] == b"<|im_start|>"


def test_a_control_token_of_the_same_text_is_that_token(vocabularies):
    shipped = vocabularies["shipped"]
    of_draft, of_target = match_control_tokens(shipped, shipped)
    assert {token: of_draft[token] for token in shipped.special_tokens.values()} == of_target


def test_texts_begin_with_the_draft_model_s_bos_if_the_target_has_none(vocabularies):
    assert prefix_of(vocabularies["llama2c"], vocabularies["shipped"]) == [vocabularies["llama2c"].bos]
    assert prefix_of(vocabularies["shipped"], vocabularies["llama2c"]) == []


def test_the_draft_model_reads_its_bos_where_only_it_begins_texts_with_one(vocabularies, monkeypatch):
    """A BOS that is not added may be a mark of chats. A BOS unknown to the draft model is not read."""
    draft, target = vocabularies["llama2c"], vocabularies["gpt2"]
    monkeypatch.setattr(target, "bos", target.turn_end)
    monkeypatch.setattr(target, "adds_bos", False)
    assert prefix_of(draft, target) == [draft.bos]
    assert added_bos(target) is None
    monkeypatch.setattr(target, "adds_bos", True)
    assert prefix_of(draft, target) == []


def test_a_vocabulary_without_some_bytes_translates(vocabularies, monkeypatch):
    piece = Vocabulary.piece

    def without_digits(self, token, **options):
        found = piece(self, token, **options)
        return b"" if found.strip().isdigit() else found

    monkeypatch.setattr(Vocabulary, "piece", without_digits)
    projection = vocabulary_pair(vocabularies["shipped"], vocabularies["gpt2"])
    for vocabulary in (projection.draft, projection.target):
        assert not any(piece.strip().isdigit() for piece in vocabulary.pieces)
        read = vocabulary.read(b"in 12 days")
        assert b"".join(data for _, data in read) == b"in 12 days"
        assert {data for token, data in read if vocabulary.pieces[token] != data} <= {b"12", b" 12"}


def test_a_tokenizer_that_llama_cpp_would_abort_in_is_not_asked(vocabularies, monkeypatch):
    vocabulary = vocabularies["llama2c"]
    monkeypatch.setattr(vocabulary, "reads_any_text", False)
    monkeypatch.delattr(Vocabulary, "encode")
    hen = byte_vocabulary(vocabulary, {}, {}).encode(b"the hen")
    assert b"".join(vocabulary.piece(token) for token in hen) == b"the hen"
