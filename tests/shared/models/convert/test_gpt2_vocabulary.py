"""vocab.json and merges.txt become a vocabulary that splits texts as GPT-2 does."""

import json

import pytest

from shared.errors import ModelLoadError
from shared.models.convert.gpt2_vocabulary import byte_alphabet, read_vocabulary
from tests.shared.models.convert.conftest import TEXT, converted
from tests.shared.models.convert.gpt2_reference import ALPHABET, encode, vocabulary

N = len(vocabulary()[0])
TEXTS = [TEXT, "a", "  a b\n\n", "the then", "théâtre 12 3.5 x_y", "世界 😀", "it's we'll", "\t<|endoftext|>"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_gpt2_s_tokens(gpt2_folder, text):
    found = converted(gpt2_folder).vocabulary
    tokens = found.tokenize(text, add_special=True, parse_special=False)
    assert tokens == encode(text)
    assert b"".join(map(found.piece, tokens)).decode() == text


def test_the_end_token_is_the_last_before_the_unused_ones(gpt2_folder):
    found = converted(gpt2_folder).vocabulary
    assert found.end_tokens == {N - 1}
    assert found.n_tokens == N + 5


def test_bytes_have_openai_s_characters():
    assert byte_alphabet() == [ALPHABET[byte] for byte in range(256)]


VOCABULARIES = {
    "no object": "[1]",
    "no JSON": "{",
    "a number that is none": '{"a": "0"}',
    "a gap": json.dumps({**vocabulary()[0], "zz": N + 3}),
    "an id twice": json.dumps({**vocabulary()[0], "zz": 3}),
    "an empty token": json.dumps({**vocabulary()[0], "": N}),
    "no bytes": json.dumps({"a": 0, "<|endoftext|>": 1}),
    "no end": json.dumps({token: i for token, i in vocabulary()[0].items() if i < N - 1}),
    "more than the model has": json.dumps({**vocabulary()[0], **{f"x{i}": N + i for i in range(9)}}),
}


@pytest.mark.parametrize("text", VOCABULARIES.values(), ids=VOCABULARIES)
def test_a_vocabulary_that_is_none_is_refused(gpt2_folder, text):
    (gpt2_folder / "vocab.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"vocab\.json"):
        read_vocabulary(gpt2_folder, N + 5, None)


@pytest.mark.parametrize("text", ["", "#version: 0.2\n", "a", "a b c", "a z", "h e\nh e", " h", "\x00"])
def test_merges_that_make_no_tokens_are_refused(gpt2_folder, text):
    (gpt2_folder / "merges.txt").write_text(text)
    with pytest.raises(ModelLoadError, match=r"merges\.txt"):
        read_vocabulary(gpt2_folder, N + 5, None)


def test_merges_in_another_encoding_are_refused(gpt2_folder):
    (gpt2_folder / "merges.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelLoadError, match="UTF-8"):
        read_vocabulary(gpt2_folder, N + 5, None)
