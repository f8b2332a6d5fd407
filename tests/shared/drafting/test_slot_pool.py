"""Which slots of the draft model's cache are lent, and what they still hold."""

import pytest

from shared.drafting.slot_pool import SlotPool
from shared.prompt_cache import PromptCacheSize


class Model:
    """Records what is done to its cache."""

    def __init__(self):
        self.calls = []

    def trim(self, slot, n_keep):
        self.calls.append(("trim", slot, n_keep))

    def copy(self, source_slot, slot, n_keep):
        self.calls.append(("copy", source_slot, slot, n_keep))

    def store(self, slot, snapshot):
        self.calls.append(("store", slot, snapshot.key))

    def restore(self, slot, snapshot, n_keep):
        self.calls.append(("load", slot, snapshot.key, n_keep))


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def pool(model):
    """Slots for two sequences and one branch of each."""
    return SlotPool(model, 2, 4)


def ended(pool, tokens):
    slot = pool.take(tokens)
    slot.add(tokens)
    pool.give_back(slot)
    return slot


def test_a_sequence_gets_the_slot_that_holds_its_prefix(pool):
    other, same = pool.take([1]), pool.take([1])
    same.add([7, 8])
    pool.give_back(other)
    pool.give_back(same)
    assert pool.take([7, 8, 9]) is same


def test_without_idle_slots_it_is_false(pool):
    pool.take([1])
    assert pool
    pool.take([1])
    assert not pool


def test_a_branch_shares_the_prefix_of_its_main_path(pool, model):
    main = pool.take([1])
    main.add([1, 2, 3])
    branch = pool.take_branch(main, 2)
    assert branch.tokens == [1, 2]
    assert model.calls == [("copy", main.index, branch.index, 2)]


def test_a_branch_slot_is_emptied_before_it_is_used_again(pool, model):
    main = pool.take([1])
    main.add([1, 2, 3])
    slots = [pool.take_branch(main, 2) for _ in range(2)]
    pool.give_back_branches(slots)
    model.calls.clear()
    branch = pool.take_branch(main, 1)
    assert model.calls == [("trim", branch.index, 0), ("copy", main.index, branch.index, 1)]


def test_dropped_tokens_are_trimmed_from_the_model(pool, model):
    slot = pool.take([1])
    slot.add([1, 2, 3])
    slot.keep(1)
    pool.trim_all()
    assert model.calls == [("trim", slot.index, 1)]


def test_the_tokens_of_ended_sequences_can_be_dropped(pool):
    slot = ended(pool, [1, 2])
    assert pool.clear_idle()
    assert slot.tokens == []
    assert not pool.clear_idle()


def test_slots_that_an_error_has_lost_are_recovered(pool):
    main = pool.take([1])
    main.add([1])
    pool.take_branch(main, 1)
    with pytest.raises(AssertionError, match="a slot is lost"):
        pool.check_integrity([main])
    pool.recover([main])
    pool.check_integrity([main])
    assert pool.n_idle_branches == 2


class TestStoredTexts:
    """Tokens of ended sequences move to host memory when another sequence gets a slot."""

    LONG, OTHER = [1] * 40, [2] * 40

    @pytest.fixture
    def pool(self, model):
        return SlotPool(model, 2, 2, prompt_cache=PromptCacheSize(500, 1))

    def test_those_of_idle_slots_are_moved(self, pool, model):
        ended(pool, self.LONG)
        pool.take(self.OTHER)
        assert model.calls == [("store", 0, 1), ("trim", 0, 0)]

    def test_they_come_back(self, pool, model):
        ended(pool, self.LONG)
        ended(pool, self.OTHER)
        slot = pool.take([*self.LONG, 5])
        assert slot.tokens == self.LONG
        assert model.calls[-1] == ("load", slot.index, 1, 40)

    def test_a_text_that_goes_on_stays_in_its_slot(self, pool, model):
        ended(pool, self.LONG)
        assert pool.take([*self.LONG, 5]).tokens == self.LONG
        assert model.calls == []

    def test_a_text_that_another_replaces_is_stored(self, model):
        pool = SlotPool(model, 1, 1, prompt_cache=PromptCacheSize(500, 1))
        ended(pool, self.LONG)
        slot = pool.take(self.OTHER)
        slot.keep(0)
        pool.trim_all()
        slot.add(self.OTHER)
        pool.give_back(slot)
        assert pool.take([*self.LONG, 5]).tokens == self.LONG

    def test_without_room_they_stay_in_their_slots(self, model):
        pool = SlotPool(model, 2, 2)
        slot = ended(pool, self.LONG)
        pool.take(self.OTHER)
        assert (model.calls, slot.tokens) == ([], self.LONG)

    def test_long_ones_are_stored_in_parts_a_part_in_each_step(self, model):
        pool = SlotPool(model, 2, 2, prompt_cache=PromptCacheSize(500, 1, n_part=15))
        ended(pool, self.LONG)
        pool.take(self.OTHER)
        assert [call[0] for call in model.calls] == ["store"]
        pool.trim_all()
        pool.trim_all()
        assert [call[0] for call in model.calls] == ["store", "store", "store", "trim"]
        pool.trim_all()
        assert len(model.calls) == 4
