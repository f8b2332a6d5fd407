"""A slot's records: the valid tokens, the tokens in the cache, and the trim that makes both equal.

Also the facts in a manifest about a text.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.cache_edits import Forget, Restore, Snapshot, Trim
from shared.image_span import row_identities
from shared.llama.memory_traits import MemoryTraits
from shared.slot_cache import SavedPart, SavedText, SlotCache, cut_length, least_useful

PART = SavedPart(kind="text", start=10, end=20, file="a-1", size=3, digest="d")


def cache_of(*tokens):
    cache = SlotCache(3)
    cache.add(tokens)
    return cache


def test_decoding_behind_tokens_that_were_not_trimmed_is_a_bug():
    cache = cache_of(1, 2, 3)
    cache.keep(1)
    with pytest.raises(AssertionError, match="not trimmed"):
        cache.add([4])


@pytest.mark.parametrize(
    ("held", "text", "score"),
    [
        ([1, 2, 9, 9, 9], [1, 2, 3, 4], 2),
        ([1, 2, 9], [1, 2, 3, 4, 5, 6, 7], 2),
        ([1, 2, 9, 9, 9], [1, 2, 3, 4, 5], 0),
        ([], [1, 2], 0),
    ],
    ids=["holds half of it", "half of its own is used", "shares little", "empty"],
)
def test_a_cache_is_drawn_to_a_text_of_which_it_holds_or_that_uses_half(held, text, score):
    assert cache_of(*held).reuse_score(text) == score


def test_a_recurrent_cache_goes_back_to_kept_states_only():
    cache = SlotCache(0, MemoryTraits(n_rollback=0, n_step_checkpoints=2))
    for token in (1, 2, 3, 4):
        cache.add([token])
        cache.save()
    cache.keep(3)
    assert (cache.tokens, cache.take_edits()) == ([1, 2, 3], [Restore(0, Snapshot("device", 0, 3), 3)])
    cache.keep(2)
    assert (cache.tokens, cache.take_edits()) == ([], [Trim(0, 0)])


@pytest.mark.parametrize(
    ("n_max", "stops", "n"),
    [(2, None, 2), (9, None, 4), (3, (1, 3, 4), 3), (9, (5, 2), 2), (1, (2,), 0), (3, (), 0)],
)
def test_a_cut_is_rounded_down_to_where_the_text_ends_or_the_memory_can_be_cut(n_max, stops, n):
    assert cut_length([1, 2, 3, 4], n_max, stops) == n


def test_no_cut_divides_an_image():
    text = [1, 2, *row_identities("a", 3), 4]
    assert [cut_length(text, n) for n in range(8)] == [0, 1, 2, 2, 2, 5, 6, 6]
    assert cut_length(text, 4, (1, 5)) == 1


def test_a_cache_that_goes_back_to_a_checkpoint_forgets_the_longer_ones():
    cache = SlotCache(0, MemoryTraits(n_rollback=0))
    for n, key in ((2, 7), (3, 8)):
        cache.add([1] * (n - len(cache)))
        cache.store(key, n_max=2)
    cache.take_stores()
    cache.keep(2)
    assert cache.take_edits() == [Restore(0, Snapshot("state", 7, 2), 2), Forget(8)]


def test_a_fork_needs_a_kept_state():
    cache = SlotCache(0, MemoryTraits(n_rollback=0, n_step_checkpoints=2))
    cache.add([1])
    cache.save()
    cache.add([2])
    cache.add([3])
    assert [n for n in range(5) if cache.can_fork(n)] == [1, 3]
    assert [n for n in range(5) if cache_of(1, 2, 3).can_fork(n)] == [0, 1, 2, 3]


def test_a_rollback_is_possible_once_within_the_last_decode():
    cache = SlotCache(0, MemoryTraits(n_rollback=2))
    cache.add([1, 2, 3, 4])
    cache.keep(2)
    assert (cache.tokens, cache.take_edits()) == ([1, 2], [Trim(0, 2)])
    cache.keep(1)
    assert cache.tokens == []


def test_all_of_the_last_decode_cannot_be_rolled_back():
    cache = SlotCache(0, MemoryTraits(n_rollback=2))
    cache.add([1])
    cache.take_edits()
    cache.add([2])
    cache.keep(1)
    assert cache.tokens == []


few_tokens = st.lists(st.integers(0, 2), max_size=6)


@given(few_tokens, few_tokens)
def test_the_shared_beginning_is_the_longest(ours, theirs):
    n = cache_of(*ours).shared_with(theirs)
    assert ours[:n] == theirs[:n]
    assert n == min(len(ours), len(theirs)) or ours[n] != theirs[n]


def test_longer_checkpoints_are_handed_over():
    short, long = Snapshot("state", 7, 2), Snapshot("state", 8, 5)
    cache = SlotCache(0, checkpoints={2: short, 5: long})
    assert (cache.hand_over(2), cache.checkpoints) == ({5: long}, {2: short})


class SlotCacheMachine(RuleBasedStateMachine):
    """Records beside a native cache that is cut back only on command."""

    def __init__(self):
        super().__init__()
        self.cache = SlotCache(0)
        self.valid = []
        self.native = []

    @rule(tokens=few_tokens)
    def decode(self, tokens):
        for trim in self.cache.take_edits():
            assert trim.n_keep < len(self.native)
            del self.native[trim.n_keep :]
        assert self.native == self.valid
        self.cache.add(tokens)
        self.native += tokens
        self.valid = [*self.valid, *tokens]

    @rule(n_keep=st.integers(0, 20))
    def keep(self, n_keep):
        self.cache.keep(n_keep)
        self.valid = self.valid[:n_keep]

    @invariant()
    def the_books_are_right(self):
        assert self.cache.tokens == self.valid
        assert len(self.cache) == len(self.valid)
        assert self.cache.n_physical == len(self.native)


TestSlotCacheMachine = SlotCacheMachine.TestCase


@pytest.mark.parametrize(
    ("lengths", "cuts", "goes"),
    [
        ([10, 20, 30, 40], [], 20),
        ([10, 20, 30, 40], [25, 45], 30),
        ([10, 20, 30, 40], [20, 30, 40], 20),
        ([10, 20], [15], 20),
        ([10], [10], 10),
    ],
)
def test_the_oldest_checkpoint_goes_that_no_later_prompt_will_need(lengths, cuts, goes):
    assert least_useful(lengths, cuts) == goes


def test_a_part_holds_the_same_tokens_under_any_key():
    assert PART.holds(Snapshot("text", 1, 20, 10))
    assert PART.snapshot(7) == Snapshot("text", 7, 20, 10)
    assert not PART.holds(Snapshot("text", 1, 20, 11))
    assert not PART.holds(Snapshot("state", 1, 20, 10))


def test_a_manifest_is_read_as_it_was_written():
    text = SavedText(name="a", owner="me", tokens=[1, 2], n_prefill=1, parts=(PART,))
    assert SavedText.model_validate_json(text.model_dump_json()) == text
