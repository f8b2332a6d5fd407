"""The n-gram source proposes what followed an earlier occurrence of the sequence's end, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.drafters.ngram import NgramDrafter
from lead.engine.drafters.suffix_index import SuffixIndex

FEW_KINDS = st.lists(st.integers(0, 3), min_size=1, max_size=120)
SPLITS = st.lists(st.integers(1, 60), max_size=6)


def draft(tokens, n_most=8):
    return NgramDrafter(8).draft(tokens, n_most)[0]


def continuation(tokens, at, n):
    """tokens[at : at + n], where what is behind the end is the continuation itself."""
    text = list(tokens)
    while len(text) < at + n:
        text.append(text[at + len(text) - len(tokens)])
    return text[at : at + n]


def test_the_continuation_of_an_earlier_occurrence_is_proposed():
    assert draft([1, 2, 3, 4, 5, 6, 7, 9, 2, 3, 4], 3) == [5, 6, 7]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 3, 4], [1, 2, 9, 2]])
def test_without_an_earlier_occurrence_of_two_tokens_nothing_is_proposed(tokens):
    assert NgramDrafter(8).draft(tokens, 8) == ([], [])


def test_of_two_occurrences_the_longer_match_is_followed():
    assert draft([1, 2, 3, 4, 50, 9, 3, 4, 60, 1, 2, 3, 4], 1) == [50]


def test_of_equally_long_matches_the_newest_is_followed():
    assert draft([1, 2, 50, 9, 1, 2, 60, 8, 1, 2], 1) == [60]


def test_a_period_goes_on_past_the_end_of_the_text():
    assert draft([9, 1, 2, 3, 1, 2, 3], 8) == [1, 2, 3, 1, 2, 3, 1, 2]
    assert draft([9, 7, 7, 7], 4) == [7, 7, 7, 7]


def test_a_copy_goes_on_where_it_was_although_the_index_has_forgotten_the_place():
    passage = list(range(100, 160))
    drafter = NgramDrafter()
    drafter.draft([*passage, *passage[:5]], 1)
    drafter._index = SuffixIndex()
    drafter._index.n_indexed = len(passage)
    assert drafter.draft([*passage, *passage[:8]], 2)[0] == passage[8:10]


def test_a_copy_that_was_left_is_not_followed_further():
    passage = list(range(100, 160))
    drafter = NgramDrafter()
    drafter.draft([*passage, *passage[:5]], 1)
    assert drafter.draft([*passage, *passage[:5], 7, 8], 2) == ([], [])


def test_confidence_rises_with_the_length_of_the_match():
    passage = list(range(100, 140))
    drafter = NgramDrafter()
    firsts = [drafter.draft([*passage, *passage[:n]], 1)[1][0] for n in (2, 5, 12, 30)]
    assert firsts == sorted(firsts)
    assert firsts[0] < 0.5
    assert firsts[-1] > 0.9


def test_confidence_rises_along_the_draft_because_each_right_token_lengthens_the_match():
    passage = list(range(100, 140))
    _, confidences = NgramDrafter().draft([*passage, 100, 101, 102], 10)
    assert confidences == sorted(set(confidences))


def test_occurrences_that_disagree_lower_the_confidence_and_those_that_agree_raise_it():
    alone = [1, 2, 50, 9, 9, 7, 8, 1, 2]
    agreeing = [1, 2, 50, 9, 1, 2, 50, 8, 1, 2]
    disputed = [1, 2, 50, 9, 1, 2, 60, 8, 1, 2]
    one, more, less = (NgramDrafter().draft(tokens, 1)[1][0] for tokens in (alone, agreeing, disputed))
    assert less < one < more


def test_after_a_dispute_is_decided_the_confidence_is_that_of_a_match_alone():
    _, disputed = NgramDrafter().draft([1, 2, 50, 51, 9, 1, 2, 60, 61, 8, 1, 2], 2)
    _, alone = NgramDrafter().draft([1, 2, 60, 61, 8, 1, 2], 2)
    assert disputed[0] < alone[0]
    assert disputed[1] == alone[1]


def test_no_more_is_proposed_than_wanted():
    tokens, confidences = NgramDrafter().draft([1, 2, 3, 1, 2], 0)
    assert (tokens, confidences) == ([], [])


@given(FEW_KINDS, st.integers(1, 20))
def test_every_draft_is_the_continuation_of_an_earlier_occurrence(tokens, n):
    proposal, confidences = NgramDrafter(8).draft(tokens, n)
    assert len(proposal) == len(confidences)
    assert all(0 < value < 1 for value in confidences)
    if proposal:
        assert len(proposal) == n
        places = [at for at in range(2, len(tokens)) if tokens[at - 2 : at] == tokens[-2:]]
        assert proposal in [continuation(tokens, at, n) for at in places]


@given(FEW_KINDS, st.integers(1, 8))
def test_collisions_never_give_a_wrong_match(tokens, n_bits):
    proposal, _ = NgramDrafter(n_bits).draft(tokens, 5)
    places = [at for at in range(2, len(tokens)) if tokens[at - 2 : at] == tokens[-2:]]
    assert not proposal or proposal in [continuation(tokens, at, 5) for at in places]


@given(FEW_KINDS)
def test_an_occurrence_of_the_last_two_tokens_is_always_found(tokens):
    places = [at for at in range(2, len(tokens)) if tokens[at - 2 : at] == tokens[-2:]]
    assert bool(draft(tokens)) == bool(places)


@given(FEW_KINDS, SPLITS)
def test_it_does_not_matter_in_which_portions_the_text_came(tokens, portions):
    drafter = NgramDrafter(8)
    end = 0
    for portion in portions:
        end = min(len(tokens), end + portion)
        drafter.extend(tokens[:end])
    assert drafter.draft(tokens, 6) == NgramDrafter(8).draft(tokens, 6)


def test_tokens_are_left_alone():
    tokens = [1, 2, 3, 1, 2]
    NgramDrafter().draft(tokens, 4)
    assert tokens == [1, 2, 3, 1, 2]
