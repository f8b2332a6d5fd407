import pytest

from shared.llama.span import Span, padding


def spans(*lengths, start=0):
    """Drafts to verify: logits are wanted for all tokens."""
    return [Span(slot, start, [1] * length, length) for slot, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("lengths", "added"),
    [
        ((1, 1, 1), [0, 0, 0]),
        ((5, 1, 3), [0, 4, 2]),
    ],
)
def test_drafts_are_made_as_long_as_the_longest_of_them(lengths, added):
    assert padding(spans(*lengths), n_batch=512, n_ctx_slot=1024) == added


def test_a_prompt_is_left_as_long_as_it_is():
    prompt = Span(2, 0, [1] * 20, 1)
    assert padding([*spans(3, 1), prompt], n_batch=512, n_ctx_slot=1024) == [0, 2, 0]


def test_the_short_end_of_a_prompt_is_made_as_long_as_a_draft():
    end = Span(1, 128, [1] * 2, 1)
    assert padding([*spans(5), end], n_batch=512, n_ctx_slot=1024) == [0, 3]


def test_a_slot_without_room_gets_none():
    full = Span(1, 98, [1], 1)
    assert padding([*spans(5), full, Span(2, 95, [1], 1)], n_batch=512, n_ctx_slot=100) == [0, 0, 4]


def test_a_batch_without_room_gets_none():
    assert padding(spans(5, 1, 1), n_batch=14, n_ctx_slot=100) == [0, 0, 0]
    assert padding(spans(5, 1, 1), n_batch=15, n_ctx_slot=100) == [0, 4, 4]
