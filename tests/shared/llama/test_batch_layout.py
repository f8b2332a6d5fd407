import pytest

from shared.exact.batch_invariance import InvariantSizes
from shared.image_span import ImageSpan
from shared.llama.batch_layout import LayoutRules, layout
from shared.llama.memory_traits import MemoryTraits
from shared.llama.span import Span

ROLLBACK = MemoryTraits(n_rollback=8, equal_lengths=True)
REPLAYING = MemoryTraits(n_rollback=0, n_step_checkpoints=1, equal_lengths=True)
WINDOW = MemoryTraits(n_rollback=64)
PROMPT = Span(9, 0, [1] * 128, 0)


def spans(*lengths, start=0):
    """Drafts to verify, with logits for all tokens."""
    return [Span(slot, start, [1] * length, length) for slot, length in enumerate(lengths)]


def lay_out(batch, n_batch=512, n_ctx=1024, **rules):
    return layout(batch, LayoutRules(n_batch, n_ctx, **rules))


def padding(batch, *limits, **rules):
    """The padding of each slot, in drafts with cells of their own."""
    (together,) = lay_out(batch, *limits, own_cells=True, **rules).passes
    return [part.n_padding for part in together]


def slots(planned):
    return [[part.span.slot for part in each] for each in planned.passes]


@pytest.mark.parametrize(("lengths", "added"), [((1, 1, 1), [0, 0, 0]), ((5, 1, 3), [0, 4, 2])])
def test_drafts_are_made_as_long_as_the_longest_of_them(lengths, added):
    assert padding(spans(*lengths)) == added


@pytest.mark.parametrize(
    ("rules", "pads"),
    [
        ({}, False),
        ({"own_cells": True}, True),
        ({"traits": ROLLBACK}, True),
        ({"traits": REPLAYING}, False),
        ({"traits": WINDOW}, False),
        ({"traits": WINDOW, "own_cells": True}, True),
    ],
)
def test_drafts_are_padded_where_that_saves_a_ubatch_and_costs_no_replay(rules, pads):
    assert lay_out(spans(3, 1), **rules).n_tokens == (6 if pads else 4)


def test_a_prompt_is_left_as_long_as_it_is():
    assert padding([*spans(3, 1), Span(2, 0, [1] * 20, 1)]) == [0, 2, 0]


def test_the_short_end_of_a_prompt_is_made_as_long_as_a_draft():
    assert padding([*spans(5), Span(1, 128, [1] * 2, 1)]) == [0, 3]


def test_a_slot_without_room_gets_none():
    full = Span(1, 98, [1], 1)
    assert padding([*spans(5), full, Span(2, 95, [1], 1)], 512, 100) == [0, 0, 4]


def test_a_batch_without_room_gets_none():
    assert padding(spans(5, 1, 1), 14) == [0, 0, 0]
    assert padding(spans(5, 1, 1), 15) == [0, 4, 4]


@pytest.mark.parametrize(
    ("rules", "order"),
    [
        ({}, [[1, 2, 0]]),
        ({"own_cells": True}, [[0, 1, 2]]),
        ({"traits": ROLLBACK}, [[1], [0, 2]]),
        ({"traits": WINDOW, "own_cells": True}, [[1], [0, 2]]),
        ({"traits": REPLAYING}, [[1, 2, 0]]),
    ],
)
def test_prompts_are_decoded_before_drafts_that_may_be_rolled_back(rules, order):
    batch = [Span(1, 128, [1] * 2, 1), Span(2, 5, [1], 1), Span(0, 0, [1], 1)]
    planned = lay_out(batch, **rules)
    assert slots(planned) == order
    assert [batch[part.number] for each in planned.passes for part in each] == [
        part.span for each in planned.passes for part in each
    ]


@pytest.mark.parametrize(
    ("batch", "own_cells", "can"),
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
def test_only_recurrent_states_of_the_last_ubatch_can_be_rolled_back(batch, own_cells, can):
    assert lay_out(batch, 512, 100, traits=ROLLBACK, own_cells=own_cells).can_roll_back == can
    assert lay_out(batch, 512, 100, own_cells=own_cells).can_roll_back == {span.slot for span in batch}


@pytest.mark.parametrize(
    ("batch", "rules", "n"),
    [
        (spans(3, 1), {}, 1),
        (spans(3, 1), {"traits": REPLAYING}, 2),
        (spans(3, 1), {"traits": ROLLBACK}, 1),
        ([*spans(3, 1), PROMPT], {"traits": ROLLBACK}, 2),
        ([*spans(3, 1), PROMPT], {"own_cells": True}, 2),
        ([*spans(3, 1), PROMPT], {}, 1),
        (spans(3, 1), {"batch_sizes": InvariantSizes((4,), (8,), joins=False), "own_cells": True}, 2),
    ],
)
def test_each_length_takes_a_pass_over_the_weights_where_llama_cpp_divides_by_lengths(batch, rules, n):
    assert lay_out(batch, **rules).n_ubatches == n


@pytest.mark.parametrize(
    ("batch", "is_apart"),
    [
        ([*spans(1, 1, start=600), PROMPT], True),
        ([*spans(1, 1, start=60), PROMPT], False),  # few cells
        ([*spans(1, 1, start=600), Span(9, 0, [1] * 8, 0)], False),  # less than a tile
        (spans(40, 40, start=600), False),  # no prompt
        ([PROMPT], False),
    ],
)
def test_a_prompt_is_read_apart_where_a_tile_would_see_many_cells_of_others(batch, is_apart):
    planned = lay_out(batch, tiles_attention=True)
    assert slots(planned) == ([[9], [0, 1]] if is_apart else [[span.slot for span in batch]])
    assert planned.n_tokens == sum(len(span.tokens) for span in batch)
    assert len(lay_out(batch).passes) == 1


IMAGE = Span(5, 3, [1] * 20, 0, image=ImageSpan(start=3, n_rows=20, n_positions=20, key="a"))


@pytest.mark.parametrize("rules", [{}, {"own_cells": True}, {"traits": ROLLBACK}])
def test_an_image_is_alone_in_its_passes_before_all_others(rules):
    planned = lay_out([*spans(3, 1), IMAGE], 16, **rules)
    first, second, *others = planned.passes
    assert [len(each.span.tokens) for (each,) in (first, second)] == [16, 4]
    assert [each.span.start for (each,) in (first, second)] == [3, 19]
    assert {part.number for each in others for part in each} == {0, 1}
    assert 5 not in planned.can_roll_back


def test_a_pass_with_an_image_alone_is_enough():
    assert slots(lay_out([IMAGE])) == [[5]]
