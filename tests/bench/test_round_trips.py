"""Texts between vocabularies."""

from bench.round_trips import is_same
from tests.shared.translation.toys import longest_first

BYTES = longest_first([bytes([byte]) for byte in range(256)])


def test_a_text_that_survives():
    assert is_same(BYTES, BYTES, "Hé 世界".encode())


def test_a_text_that_is_changed():
    class Losing(type(BYTES)):
        def encode(self, data):
            return [token for token in super().encode(data) if token != ord(" ")]

    assert not is_same(BYTES, Losing(BYTES.pieces, lambda _text: []), b"a b")


def test_a_beginning_that_ends_inside_a_character_must_survive_too():
    class Whole(type(BYTES)):
        def encode(self, data):
            return super().encode(data.decode("utf-8", "ignore").encode())

    assert not is_same(BYTES, Whole(BYTES.pieces, lambda _text: []), "é".encode())
