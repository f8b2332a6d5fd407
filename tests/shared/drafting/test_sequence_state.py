"""The batch of a step: each path that drafts gets a token, and prompts share the rest."""

import pytest

from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.sequence_state import DraftBranch, SequenceState, spans_of
from shared.llama.memory_traits import PLAIN
from shared.llama.span import Span
from shared.slot_cache import SlotCache
from tests.toy_model import END_TOKENS, GREEDY, toy_sampler


def path_with(slot, n_pending, n_decoded=5):
    """(state, its main branch). `n_pending` committed tokens are not decoded yet."""
    committed = list(range(n_decoded + n_pending))
    cache = SlotCache(slot, PLAIN)
    cache.add(committed[:n_decoded])
    main = DraftBranch(len(committed)).begin(cache, toy_sampler(GREEDY, committed))
    options = DrafterOptions(n_slots=1, n_window=100, n_ahead=4)
    return SequenceState(f"s{slot}", GREEDY, committed, main, options, END_TOKENS, lambda _: None), main


def lengths(*n_pending, n_max=100, n_chunk=100):
    work = [path_with(slot, n) for slot, n in enumerate(n_pending)]
    return [len(span.tokens) for span in spans_of(work, n_max, n_chunk)]


def test_a_span_goes_on_where_the_cache_ends():
    assert spans_of([path_with(3, 2)], 10, 10) == [Span(3, 5, [5, 6], 1)]


def test_the_end_of_a_prompt_gives_logits_and_no_other_part():
    work = [path_with(0, 4)]
    assert [span.n_logits for n_max in (3, 4) for span in spans_of(work, n_max, 10)] == [0, 1]


@pytest.mark.parametrize(
    ("n_max", "expected"), [(2, [1, 1]), (7, [6, 1]), (9, [8, 1]), (12, [8, 4]), (100, [8, 9])]
)
def test_the_first_of_several_prompts_takes_what_is_left(n_max, expected):
    assert lengths(8, 9, n_max=n_max) == expected


def test_beside_a_path_that_drafts_a_prompt_takes_at_most_a_chunk():
    assert lengths(1, 50, n_chunk=6) == [1, 7]


def test_a_prompt_alone_takes_more_than_a_chunk():
    assert lengths(50, n_chunk=6) == [50]


def test_each_path_has_a_token_even_if_they_are_more_than_asked_for():
    assert lengths(1, 1, 9, n_max=1) == [1, 1, 1]
