from hypothesis import given
from hypothesis import strategies as st

from lead.engine.drafters.suffix_index import SuffixIndex
from lead.suffix.seen_texts import SeenTexts
from lead.suffix.suffix_drafter import SuffixDrafter

ALICE, BOB = 1, 2
FEW_TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=80)


def seen(*texts, owner=ALICE, n_bytes=1 << 16):
    kept = SeenTexts(n_bytes, 100.0, lambda: 0.0)
    for tokens in texts:
        SuffixDrafter(kept, owner).close(tokens)
    return kept


def suffix_draft(texts, tokens, n_max=8, owner=ALICE):
    return SuffixDrafter(texts, owner).draft(tokens, n_max)[0]


def test_what_followed_in_an_earlier_text_is_proposed():
    assert suffix_draft(seen([1, 2, 3, 4, 5, 6]), [9, 9, 2, 3], 2) == [4, 5]


def test_nothing_is_proposed_beyond_the_end_of_that_text():
    assert suffix_draft(seen([1, 2, 3, 4], [5, 6, 7]), [2, 3]) == [4]


def test_a_text_is_no_source_for_other_owners():
    assert suffix_draft(seen([1, 2, 3, 4]), [2, 3], owner=BOB) == []


def test_a_sequence_is_no_source_before_it_has_ended():
    assert suffix_draft(seen([7, 8]), [1, 2, 3, 1, 2]) == []


def test_the_longest_match_is_followed_and_the_newest_of_equally_long_ones():
    assert suffix_draft(seen([5, 1, 2, 50, 0], [6, 1, 2, 60, 0]), [5, 1, 2], 1) == [50]
    assert suffix_draft(seen([5, 1, 2, 50, 0], [5, 1, 2, 60, 0]), [5, 1, 2], 1) == [60]


def test_a_copy_from_another_text_goes_on_where_it_was_although_the_index_has_forgotten_the_place():
    passage = list(range(100, 160))
    texts = seen(passage)
    drafter = SuffixDrafter(texts, ALICE)
    drafter.draft(passage[:5], 1)
    texts._index = SuffixIndex(4)
    assert drafter.draft(passage[:8], 2)[0] == passage[8:10]


def test_a_copy_does_not_go_on_past_what_is_kept():
    texts = seen([1, 2, 3, 4])
    drafter = SuffixDrafter(texts, ALICE)
    drafter.draft([2, 3], 8)
    assert drafter.draft([2, 3, 4, 1, 2, 3, 4, 1, 2], 8)[0] == [3, 4]
    assert drafter.draft([2, 3, 4, 8, 8, 8, 8, 8, 8], 8)[0] == []


@given(
    st.lists(st.tuples(st.integers(0, 2), FEW_TOKENS), max_size=12),
    st.integers(0, 2),
    FEW_TOKENS,
    st.sampled_from([1 << 10, 1 << 12, 1 << 16]),
)
def test_every_draft_follows_the_end_in_one_text_of_the_same_owner(texts, owner, tokens, n_bytes):
    kept = SeenTexts(n_bytes, 100.0, lambda: 0.0)
    for each, text in texts:
        SuffixDrafter(kept, each).close(text)
    drafted, confidences = SuffixDrafter(kept, owner).draft(tokens, 5)
    assert len(drafted) == len(confidences)
    pattern = [*tokens[-2:], *drafted]
    own = [text for each, text in texts if each == owner]
    assert not drafted or any(
        text[at : at + len(pattern)] == pattern for text in own for at in range(len(text))
    )
