"""The slots share one pool of cells: who runs where, who waits, who gives way."""

import pytest

from lead.engine.messages import Started
from lead.engine.slot import EngineSequence
from lead.engine.slots import Slots
from tests.fakes import GREEDY, toy_sampler


def sequence(name="s", tokens=(1, 2, 3)):
    tokens = list(tokens)
    return EngineSequence(name, tokens, toy_sampler(GREEDY, tokens), None)


class Room:
    """Slots whose sequences are decoded by hand."""

    def __init__(self, n_slots=2, n_ctx=20, *, can_trim=True):
        self.slots = Slots(n_slots, n_ctx, can_trim=can_trim)

    def enter(self, name="s", tokens=(1, 2, 3), *, nobody_new=False):
        """What is said about those that start now."""
        self.slots.enqueue(sequence(name, tokens))
        return self.slots.admit(nobody_new=nobody_new)

    def decode(self):
        """Everything that is to be decoded, and one more token each."""
        self.slots.trims()
        for slot in self.slots.running():
            slot.cache.add(slot.sequence.tokens[len(slot.cache) :])
            slot.sequence.tokens.append(7)
        self.slots.check_integrity()

    def leave(self, name):
        self.slots.remove(name)

    @property
    def running(self):
        return [slot.sequence.id for slot in self.slots.running()]


def test_without_sequences_all_is_idle():
    room = Room()
    assert (room.slots.idle, room.slots.ids, room.running, room.slots.n_free) == (True, [], [], 20)


def test_a_sequence_that_finds_a_slot_starts():
    room = Room()
    assert room.enter() == [Started(sequence="s", n_cached=0)]
    assert (room.slots.idle, room.running) == (False, ["s"])


def test_a_sequence_that_finds_none_waits():
    room = Room(n_slots=1)
    room.enter("s")
    assert room.enter("t") == []
    assert (room.running, room.slots.ids) == (["s"], ["s", "t"])
    room.leave("s")
    assert [started.sequence for started in room.slots.admit(nobody_new=False)] == ["t"]


def test_tokens_are_found_wherever_the_sequence_is():
    room = Room(n_slots=1)
    room.enter("s", [1, 2])
    room.enter("t", [3])
    assert [room.slots.tokens_of(name) for name in "stu"] == [[1, 2], [3], []]


def test_nobody_new_starts_beside_others_when_room_is_short():
    room = Room()
    assert len(room.enter("s", nobody_new=True)) == 1, "one alone always starts"
    assert room.enter("t", nobody_new=True) == []


def test_a_prompt_must_fit_beside_what_the_others_hold():
    room = Room(n_slots=3, n_ctx=20)
    room.enter("s", [1] * 9)
    assert room.enter("t", [2] * 10) == []
    assert room.enter("u", [3]) == [], "nobody overtakes"
    room.leave("t")
    assert [started.sequence for started in room.slots.admit(nobody_new=False)] == ["u"]


def test_a_text_that_continues_a_cached_one_finds_it():
    room = Room()
    room.enter("s")
    room.decode()
    room.leave("s")
    assert room.enter("t", [1, 2, 3, 7, 8]) == [Started(sequence="t", n_cached=3)]
    assert room.slots.trims() == []


def test_what_of_a_cached_text_is_not_continued_is_cut_off():
    room = Room(n_slots=1)
    room.enter("s", [1, 2, 3, 4])
    room.decode()
    room.leave("s")
    assert room.enter("t", [1, 2, 9])[0].n_cached == 2
    assert room.slots.trims() == [(0, 2)]
    assert room.slots.trims() == [], "told once"


def test_without_trimming_a_cached_text_is_used_whole_or_not_at_all():
    room = Room(n_slots=1, can_trim=False)
    room.enter("s", [1, 2, 3, 4])
    room.decode()
    room.leave("s")
    assert room.enter("t", [1, 2, 9])[0].n_cached == 0
    room.decode()
    room.leave("t")
    assert room.enter("u", [1, 2, 9, 5])[0].n_cached == 3


def test_the_oldest_sequence_is_in_front_whatever_its_slot():
    room = Room()
    room.enter("s")
    room.enter("t")
    room.leave("s")
    room.enter("u")
    assert room.running == ["t", "u"]


def test_idle_caches_give_way_first_the_one_used_longest_ago():
    room = Room(n_slots=3, n_ctx=20)
    for name, token in (("s", 1), ("t", 2)):
        room.enter(name, [token] * 6)
        room.decode()
    room.leave("t")
    room.leave("s")
    assert room.slots.n_free < 12
    assert room.slots.free_up_to(12) >= 12
    assert room.enter("u", [1] * 7)[0].n_cached == 6, "s was used last"


def test_what_cannot_be_freed_is_not():
    room = Room(n_ctx=20)
    room.enter("s", [1] * 6)
    room.decode()
    assert room.slots.free_up_to(20) == 14
    assert not room.slots.evict_idle()


def test_the_youngest_steps_back_when_a_token_each_does_not_fit():
    room = Room(n_ctx=12)
    room.enter("s", [1] * 4)
    room.enter("t", [2] * 5)
    for _ in range(2):
        room.decode()
    room.slots.make_room_for_one_token_each()
    assert (room.running, room.slots.ids) == (["s"], ["s", "t"])
    assert room.slots.n_free >= 1


def test_whoever_stepped_back_is_next_and_says_so():
    room = Room()
    room.enter("s")
    room.enter("t")
    room.enter("u")
    room.slots.preempt(room.slots.running()[-1])
    (again,) = room.slots.admit(nobody_new=False)
    assert (again.sequence, again.again) == ("t", True)
    assert room.running == ["s", "t"]


def test_a_waiting_sequence_can_be_removed():
    room = Room(n_slots=1)
    room.enter("s")
    room.enter("t")
    room.leave("t")
    room.leave("unknown")
    assert room.slots.ids == ["s"]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda slot: slot.cache.tokens.__setitem__(0, 9), "another text"),
        (lambda slot: slot.sequence.tokens.pop(), "nothing left"),
    ],
)
def test_wrong_books_are_noticed(spoil, complaint):
    room = Room()
    room.enter()
    room.decode()
    spoil(room.slots.running()[0])
    with pytest.raises(AssertionError, match=complaint):
        room.slots.check_integrity()
