import pytest

from shared.llama.span import (
    Span,
    n_passes,
    padding,
    prompts_first,
    slots_in_last_pass,
    wants_two_passes,
)


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


def test_prompts_are_decoded_before_drafts():
    end, draft = Span(1, 128, [1] * 2, 1), Span(0, 0, [1], 1)
    assert prompts_first([draft, end]) == [[end], [draft]]
    assert prompts_first([draft]) == [[draft]]


@pytest.mark.parametrize(
    ("batch", "in_order", "slots"),
    [
        (spans(3, 1), False, {0, 1}),
        ([Span(5, 0, [1] * 9, 1)], False, {5}),
        ([*spans(3, 1), Span(5, 0, [1] * 9, 1)], False, {0, 1}),  # the prompt was decoded before
        ([Span(0, 0, [1] * 9, 1), Span(1, 0, [1] * 8, 0)], False, set()),  # prompts are not padded
        ([*spans(5), Span(1, 98, [1], 1)], False, set()),  # no room for padding
        ([Span(0, 0, [1], 1), Span(2, 0, [1], 1)], False, {0, 2}),
        ([Span(0, 0, [1], 1), Span(2, 0, [1], 1)], True, set()),
        ([Span(2, 0, [1], 1), Span(1, 0, [1], 1)], True, {1, 2}),
    ],
)
def test_only_the_slots_of_the_last_pass_can_be_rolled_back(batch, in_order, slots):
    assert slots_in_last_pass(batch, n_batch=512, n_ctx_slot=100, in_order=in_order) == slots


@pytest.mark.parametrize(
    ("lengths", "n_padding", "equal_lengths", "n"),
    [
        ((3, 1), (0, 0), False, 1),
        ((3, 1), (0, 0), True, 2),
        ((3, 1), (0, 2), True, 1),
        ((3, 1, 9), (0, 2, 0), True, 2),
    ],
)
def test_each_length_takes_a_pass_of_its_own(lengths, n_padding, equal_lengths, n):
    assert n_passes(spans(*lengths), n_padding, equal_lengths=equal_lengths) == n


def test_a_slot_without_room_gets_none():
    full = Span(1, 98, [1], 1)
    assert padding([*spans(5), full, Span(2, 95, [1], 1)], n_batch=512, n_ctx_slot=100) == [
        0,
        0,
        4,
    ]


def test_a_batch_without_room_gets_none():
    assert padding(spans(5, 1, 1), n_batch=14, n_ctx_slot=100) == [0, 0, 0]
    assert padding(spans(5, 1, 1), n_batch=15, n_ctx_slot=100) == [0, 4, 4]


PROMPT = Span(9, 0, [1] * 128, 0)


@pytest.mark.parametrize(
    ("batch", "wants"),
    [
        ([*spans(1, 1, start=600), PROMPT], True),
        ([*spans(1, 1, start=60), PROMPT], False),  # few cells
        ([*spans(1, 1, start=600), Span(9, 0, [1] * 8, 0)], False),  # less than a tile
        (spans(40, 40, start=600), False),  # no prompt
        ([PROMPT], False),
    ],
)
def test_a_prompt_is_read_apart_where_a_tile_would_see_many_cells_of_others(batch, wants):
    assert wants_two_passes(batch) is wants
