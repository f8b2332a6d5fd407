import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.exact.batch_invariance import RESERVE, InvariantSizes, invariant_passes
from shared.llama.span import Span

UNIFORM = InvariantSizes((2, 3, 4, 6, 8, 16), (2, 3, 4, 6, 8, 16), (32,))
APART = InvariantSizes((2, 3), (8, 12, 16), (32,))


def answer(slot, start, n, n_logits=None):
    return Span(slot, start, list(range(n)), n if n_logits is None else n_logits)


def prompt(slot, start, n, n_logits=0):
    return Span(slot, start, list(range(n)), n_logits, is_prompt=True)


def shapes(spans, policy):
    """For each pass: its slots, the number of tokens of each, and the number of outputs."""
    return [
        ([part.span.slot for part in each], each[0].size, each[0].n_rows)
        for each in invariant_passes(spans, policy)
    ]


def test_logits_at_the_end_of_a_prompt_come_in_a_number_that_is_a_width_too():
    assert shapes([prompt(0, 0, 30, 1)], UNIFORM) == [([0], 32, 3)]


def test_slots_share_a_pass_in_which_their_sum_is_a_width_too():
    expected = [([0, 1], 3, 3), ([2], 2, 2)]
    assert shapes([answer(0, 9, 1), answer(1, 9, 3), answer(2, 9, 1)], UNIFORM) == expected


def test_where_joint_passes_differ_each_slot_takes_its_own():
    policy = InvariantSizes(UNIFORM.answer, UNIFORM.prompt, joins=False)
    assert shapes([answer(0, 9, 2), answer(1, 9, 2)], policy) == [([0], 2, 2), ([1], 2, 2)]


def test_the_logits_that_were_asked_for_are_picked():
    ((part,),) = invariant_passes([prompt(0, 0, 5, 1)], APART)
    outputs = np.arange(part.n_rows, dtype=np.float32)[:, None]
    assert part.wanted(outputs)[:, 0].tolist() == [4.0]
    ((part,),) = invariant_passes([prompt(0, 0, 5)], APART)
    assert part.wanted(outputs[:0]).shape == (0, 1)


def test_what_is_free_replaces_padding():
    assert [UNIFORM.n_padding(n) for n in (1, 2, 5, 7)] == [1, 0, 1, 1]


SPANS = st.lists(st.tuples(st.booleans(), st.integers(1, 60), st.booleans()), min_size=1, max_size=6)


@given(SPANS, st.sampled_from([UNIFORM, APART]))
def test_each_token_is_decoded_once_in_order_and_in_its_class(given_spans, policy):
    spans = []
    for slot, (is_prompt, n, wants) in enumerate(given_spans):
        n_logits = (1 if is_prompt else min(n, policy.answer[-1])) if wants else 0
        spans.append(Span(slot, 5, list(range(n)), n_logits, is_prompt=is_prompt))
    decoded, n_logits = {span.slot: [] for span in spans}, dict.fromkeys(range(len(spans)), 0)
    for together in invariant_passes(spans, policy):
        narrow = policy.narrow(together[0].span)
        n_outputs = sum(part.n_rows for part in together)
        assert n_outputs == 0 or (n_outputs in narrow and together[0].n_rows in narrow)
        assert len(together) == 1 or sum(part.size for part in together) in narrow
        slots = [part.span.slot for part in together]
        assert slots == list(range(slots[0], slots[0] + len(slots)))
        for part in together:
            assert part.size in policy.of(part.span)
            assert part.size == together[0].size
            assert part.n_padding <= RESERVE
            assert part.span.start == 5 + len(decoded[part.span.slot])
            decoded[part.span.slot] += part.span.tokens
            n_logits[part.span.slot] += part.span.n_logits
    assert [decoded[span.slot] for span in spans] == [span.tokens for span in spans]
    assert [n_logits[span.slot] for span in spans] == [span.n_logits for span in spans]
