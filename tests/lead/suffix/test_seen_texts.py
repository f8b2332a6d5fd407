import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lead.suffix import seen_texts
from lead.suffix.seen_texts import SeenTexts, mark, unmark

ALICE, BOB = 1, 2
NOTHING = 0
TOKENS = st.lists(st.integers(0, 3) | st.integers(0, 200_000), max_size=300)


def texts_of(n_bytes=1 << 16, max_age=100.0, clock=lambda: 0.0):
    return SeenTexts(n_bytes, max_age, clock)


def kept(texts):
    return texts[0 : len(texts)]


def test_it_says_when_the_next_text_has_reached_its_age(clock):
    texts = texts_of(max_age=10.0, clock=clock)
    assert texts.forget_old() is None
    texts.add(ALICE, [5, 6, 7, 8])
    clock.now = 4.0
    texts.add(ALICE, [1, 2, 3, 4])
    assert texts.forget_old() == 6.0
    clock.now = 10.0
    assert texts.forget_old() == 4.0
    assert kept(texts) == [*mark(ALICE, [1, 2, 3, 4]), NOTHING]


def test_a_text_is_found_by_its_owner_alone():
    texts = texts_of()
    texts.add(ALICE, [5, 6, 7, 8])
    assert [texts[at : at + 2] for at in texts.places(mark(ALICE, [6, 7]))] == [[*mark(ALICE, [8]), NOTHING]]
    assert texts.places(mark(BOB, [6, 7])) == []


@given(st.lists(st.tuples(st.integers(0, 3), TOKENS), max_size=30), st.integers(10, 16))
def test_memory_does_not_grow_and_the_newest_tokens_are_kept(added, n_bits):
    texts = texts_of(1 << n_bits)
    n_bytes = texts._ring.nbytes + sum(
        table.nbytes for table in (*texts._index._newest, *texts._index._previous)
    )
    assert n_bytes <= 1 << n_bits
    for owner, tokens in added:
        texts.add(owner, tokens)
        assert len(kept(texts)) <= len(texts._ring)
        assert len(texts._blocks) <= len(texts._ring) // 64
    if added and len(added[-1][1]) >= 2:
        owner, tokens = added[-1]
        n = min(len(tokens), len(texts._ring) - 1, 64)
        assert kept(texts)[-n - 1 :] == [*mark(owner, tokens[-n:]), NOTHING]


@given(st.lists(TOKENS, max_size=12))
def test_a_slice_is_what_was_added_whatever_place_in_the_ring_it_has(added):
    texts, all_ = texts_of(1 << 12), []
    for i, tokens in enumerate(added):
        texts.add(i, tokens)
        all_ += [*mark(i, tokens), NOTHING] if len(tokens) >= 2 else []
    oldest = len(texts) - len(kept(texts))
    if len(all_) == len(texts):  # nothing was cut for being longer than the ring
        assert kept(texts) == all_[oldest:]
        assert [texts[at] for at in range(len(texts))] == [NOTHING] * oldest + all_[oldest:]


def test_an_old_text_is_neither_found_nor_kept_in_memory(clock):
    texts = texts_of(max_age=10.0, clock=clock)
    texts.add(ALICE, [5, 6, 7, 8])
    clock.now = 6.0
    texts.add(ALICE, [15, 16, 17, 18])
    clock.now = 10.5
    assert texts.places(mark(ALICE, [6, 7])) == []
    assert texts.places(mark(ALICE, [16, 17]))
    assert set(np.unique(texts._ring)) == {NOTHING, *mark(ALICE, [15, 16, 17, 18])}


def test_a_conversation_that_goes_on_is_kept_once():
    texts, turn = texts_of(), list(range(1000))
    texts.add(ALICE, turn)
    n_before = len(texts)
    texts.add(ALICE, [*turn, *range(2000, 2100)])
    assert len(texts) - n_before < 100 + 3 * 64
    assert texts.places(mark(ALICE, [990, 991]))
    assert texts.places(mark(ALICE, [2050, 2051]))


def test_the_beginning_of_anothers_text_is_no_reason_to_leave_it_out():
    texts, text = texts_of(), list(range(1000))
    texts.add(ALICE, text)
    texts.add(BOB, text)
    assert texts.places(mark(BOB, [100, 101]))


def test_a_beginning_that_will_soon_be_overwritten_is_kept_anew():
    texts = texts_of(1 << 14)
    often, half = list(range(256)), len(texts._ring) // 2
    texts.add(ALICE, often)
    texts.add(ALICE, list(range(1000, 1000 + half)))
    texts.add(ALICE, often)
    texts.add(ALICE, list(range(9000, 9000 + half)))
    assert texts.places(mark(ALICE, [100, 101]))


def test_places_do_not_outgrow_the_index(monkeypatch):
    monkeypatch.setattr(seen_texts, "MAX_PLACE", 50)
    texts = texts_of()
    for i in range(20):
        texts.add(ALICE, [i, i + 1, i + 2, i + 3])
    assert len(texts) <= 50
    assert texts.places(mark(ALICE, [20, 21]))


def test_what_follows_is_the_owners_up_to_the_end_of_the_text():
    assert unmark(ALICE, [*mark(ALICE, [5, 6]), NOTHING, *mark(ALICE, [7])]) == [5, 6]
    assert unmark(ALICE, mark(BOB, [5])) == []
