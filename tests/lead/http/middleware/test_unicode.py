import json

import pytest

from lead.http.middleware.unicode import is_unicode


@pytest.mark.parametrize(
    "body",
    [
        b"",
        json.dumps("\U0001f44b").encode(),
        json.dumps("\U0001f44b", ensure_ascii=False).encode(),
        rb'"\\ud83d"',  # a backslash and letters
        rb'"\u00e9\n\\"',
    ],
)
def test_text_is(body):
    assert is_unicode(body)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps("\ud83d").encode(),
        json.dumps("\udc4b\ud83d").encode(),
        rb'"\\\ud83dx"',  # a backslash, then half a pair
        rb'"\uD83D\u0041"',
        b'"\xff"',
        '{"x": "a"}'.encode("utf-16-le"),
        '{"x": "a"}'.encode("utf-32"),
    ],
)
def test_half_a_pair_and_other_encodings_are_not(body):
    assert not is_unicode(body)
