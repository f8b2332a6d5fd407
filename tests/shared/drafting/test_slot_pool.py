"""The slots of the draft model's cache that are lent, and the tokens that they still hold."""

import pytest

from shared.drafting.slot_pool import SlotPool
from shared.llama.span import Span
from shared.text_store import PromptCacheSize
from tests.toy_model import FakeTarget

LONG, OTHER = [1] * 40, [2] * 40


class Pool(SlotPool):
    """A pool with a model whose tokens are decoded by hand."""

    def __init__(self, n_sequences=2, n_slots=4, n_stored=0, n_part=0):
        self.model = FakeTarget(n_slots)
        super().__init__(
            self.model, n_sequences, n_slots, prompt_cache=PromptCacheSize(n_stored, 1, n_part=n_part)
        )

    def read(self, tokens):
        """The slot of a sequence that has these tokens."""
        slot = self.take(tokens)
        slot.keep(slot.shared_with(tokens))
        self.trim_all()
        if new := tokens[len(slot) :]:
            self.model.decode([Span(slot.index, len(slot), new, 0)])
            slot.add(new)
        return slot

    def end(self, *texts):
        """Let sequences with these texts end, one after the other."""
        for tokens in texts:
            self.give_back(self.read(tokens))


def test_a_sequence_gets_the_slot_that_holds_its_prefix():
    pool = Pool()
    other, same = pool.read([1]), pool.read([7, 8])
    pool.give_back(other)
    pool.give_back(same)
    assert pool.take([7, 8, 9]) is same


def test_a_branch_shares_the_prefix_of_its_main_path_in_a_slot_that_was_emptied():
    pool = Pool()
    main = pool.read([1, 2, 3])
    slots = [pool.take_branch(main, 2) for _ in range(2)]
    assert [pool.model.slots[slot.index] for slot in slots] == [slot.tokens for slot in slots] == [[1, 2]] * 2
    for slot in slots:
        pool.give_back_branch(slot)
    branch = pool.take_branch(main, 1)
    assert pool.model.slots[branch.index] == branch.tokens == [1]


def test_the_tokens_of_ended_sequences_can_be_dropped():
    pool = Pool()
    pool.end([1, 2])
    assert pool.clear_idle()
    pool.trim_all()
    assert not any(pool.model.slots)
    assert not pool.clear_idle()


# Tokens of ended sequences move to host memory when another sequence gets a slot


@pytest.mark.parametrize("n_sequences", [1, 2])
def test_a_stored_text_comes_back(n_sequences):
    pool = Pool(n_sequences, n_sequences, n_stored=500)
    pool.end(LONG, OTHER)
    assert sum(map(len, pool.model.slots)) == 40, "of one text"
    slot = pool.take([*LONG, 5])
    assert pool.model.slots[slot.index] == slot.tokens == LONG


def test_a_text_that_goes_on_stays_in_its_slot():
    pool = Pool(n_stored=500)
    pool.end(LONG)
    assert pool.take([*LONG, 5]).tokens == LONG
    assert pool.model.n_stored == 0


def test_without_room_texts_stay_in_their_slots():
    pool = Pool()
    pool.end(LONG, OTHER)
    assert sum(map(len, pool.model.slots)) == 80


def test_what_is_being_loaded_ends_with_the_sequence():
    pool = Pool(n_stored=500, n_part=15)
    pool.end(LONG, OTHER)
    for _ in range(4):
        pool.trim_all()
    slot = pool.take([*LONG, 5])
    assert len(slot) == 15
    pool.give_back(slot)
    pool.trim_all()
    assert slot.tokens == LONG[:15]
