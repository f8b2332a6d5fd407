import pytest

from shared.llama.span import Span, fillers


def spans(*lengths, start=0):
    return [Span(slot, start, [1] * length, 1) for slot, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("lengths", "added"),
    [
        ((1, 1, 1), [0, 0, 0]),
        ((5, 1, 3), [0, 4, 2]),
        ((5, 1, 128), [0, 4, 0]),
        ((128, 100), [0, 0]),
    ],
)
def test_short_spans_are_made_as_long_as_the_longest_of_them(lengths, added):
    assert fillers(spans(*lengths), n_batch=512, n_ctx_slot=1024) == added


def test_a_slot_without_room_gets_none():
    full = Span(1, 98, [1], 1)
    assert fillers([*spans(5), full, Span(2, 95, [1], 1)], n_batch=512, n_ctx_slot=100) == [0, 0, 4]


def test_a_batch_without_room_gets_none():
    assert fillers(spans(5, 1, 1), n_batch=14, n_ctx_slot=100) == [0, 0, 0]
    assert fillers(spans(5, 1, 1), n_batch=15, n_ctx_slot=100) == [0, 4, 4]
