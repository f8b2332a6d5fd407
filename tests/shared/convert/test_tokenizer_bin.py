import struct

import pytest

from shared.convert.tokenizer_bin import read_tokenizer
from shared.errors import ModelLoadError
from tests.shared.convert.conftest import PIECES, SCORES, converted
from tests.shared.convert.llama2c_reference import tokenizer_bin

SPLIT = {
    "Once upon a time, the hen": b" Once/ upon/ a/ time/,/ the/ /he/n",
    "Hé! it's": b" /H/\xc3\xa9/!/ /i/t/'/s",
    "a": b" a",
    " a  b ": b" / a/ / /b/ ",
    "the the the": b" the/ the/ the",
    "théâtre\n\nOnce": b" t/h/\xc3\xa9/\xc3/\xa2/t/r/e/\n/\n/Once",
    "世界 😀": b" /\xe4/\xb8/\x96/\xe7/\x95/\x8c/ /\xf0/\x9f/\x98/\x80",
    "\t<s>": b" /\t/</s/>",
}


@pytest.mark.parametrize("text", SPLIT)
def test_a_text_is_split_as_run_c_does_it(checkpoint, text):
    vocabulary = converted(checkpoint).vocabulary
    bos, *tokens = vocabulary.tokenize(text, add_special=True, parse_special=False)
    assert bos == vocabulary.bos
    assert b"/".join(map(vocabulary.piece, tokens)) == SPLIT[text]


def damaged(change):
    pieces, scores = list(PIECES), list(SCORES)
    change(pieces, scores)
    return tokenizer_bin(pieces, scores)


DAMAGES = {
    "no byte tokens": lambda pieces, _: pieces.__setitem__(slice(3, 259), [f"x{i}" for i in range(256)]),
    "a token twice": lambda pieces, _: pieces.__setitem__(300, pieces[301]),
    "an empty token": lambda pieces, _: pieces.__setitem__(300, ""),
    "no number": lambda _, scores: scores.__setitem__(300, float("nan")),
    "too few": lambda pieces, scores: (pieces.pop(), scores.pop()),
    "too many": lambda pieces, scores: (pieces.append("zz"), scores.append(0.0)),
}


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES)
def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path, change):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(damaged(change))
    with pytest.raises(ModelLoadError, match=f"is not the tokenizer.bin .* with {len(PIECES)} tokens: "):
        read_tokenizer(path, len(PIECES))


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 100])
def test_a_lie_about_a_length_is_refused(tmp_path, length):
    data = bytearray(tokenizer_bin(PIECES, SCORES))
    struct.pack_into("<i", data, 8, length)
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match="damaged"):
        read_tokenizer(path, len(PIECES))


def test_a_missing_tokenizer_is_an_error(tmp_path):
    with pytest.raises(ModelLoadError, match="No such file"):
        read_tokenizer(tmp_path / "tokenizer.bin", 3)


def test_a_count_beyond_the_file_is_refused_before_reading(tmp_path):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(tokenizer_bin(PIECES, SCORES))
    with pytest.raises(ModelLoadError, match="too short"):
        read_tokenizer(path, 2**31 - 1)
