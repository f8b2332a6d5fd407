"""The slots share one pool of cells: the sequences that run, wait, or give way."""

import pytest

from lead.engine.events import Started
from lead.engine.slot import TrialPlace
from lead.engine.slot_manager import SlotManager
from shared.cache_edits import Copy, Restore, Snapshot, Store, Trim
from shared.exact.batch_invariance import InvariantSizes
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.text_store import PromptCacheSize
from tests.toy_engine import engine_sequence, make_limits


class Room:
    """Slots whose sequences are decoded by hand."""

    def __init__(self, n_slots=2, n_ctx=20, **limits):
        self.slots = SlotManager(make_limits(n_slots, n_ctx, **limits))

    def enter(self, name="s", tokens=(1, 2, 3), *, only_if_idle=False, **options):
        """Return an event for each sequence that starts now."""
        self.slots.add(engine_sequence(name, tokens, **options))
        return self.slots.admit(only_if_idle=only_if_idle)

    def decode(self):
        """Decode everything that is to be decoded, and add one token to each sequence."""
        self.slots.pop_edits()
        for slot in self.slots.running():
            slot.cache.add(slot.sequence.tokens[len(slot.cache) :])
            slot.sequence.tokens.append(7)
        self.slots.check_integrity()

    def leave(self, name):
        self.slots.remove(self.slots.sequences[name])

    @property
    def running(self):
        return [slot.sequence.id for slot in self.slots.running()]


def left(tokens=(1, 2, 3), **limits):
    """A room with the text of a sequence that has left."""
    room = Room(**limits)
    room.enter(tokens=tokens)
    room.decode()
    room.leave("s")
    return room


def test_only_if_idle_starts_beside_others_when_room_is_short():
    room = Room()
    assert len(room.enter("s", only_if_idle=True)) == 1, "one alone always starts"
    assert room.enter("t", only_if_idle=True) == []


def test_a_prompt_must_fit_beside_what_the_others_hold():
    room = Room(n_slots=3, n_ctx=20)
    room.enter("s", [1] * 9)
    assert room.enter("t", [2] * 10) == []
    assert room.enter("u", [3]) == [], "the order of the queue is kept"
    room.leave("t")
    assert [started.sequence for started in room.slots.admit(only_if_idle=False)] == ["u"]


# One beginning, several texts


def test_a_beginning_that_another_slot_holds_is_copied():
    room = Room()
    room.enter("s", [1, 2, 3, 4])
    room.decode()
    assert room.enter("t", [1, 2, 3, 9]) == [Started(sequence="t", n_cached=3, slot=1)]
    assert room.slots.pop_edits() == [Copy(0, 1, 3)]
    assert room.slots.pop_edits() == [], "told once"
    room.decode()


@pytest.mark.parametrize(("n", "n_cached"), [(32, 32), (31, 0)])
def test_where_all_cells_are_copied_that_has_to_save_enough(n, n_cached):
    room = Room(n_ctx=200, own_cells=True)
    room.enter("s", [5] * n + [8])
    room.decode()
    assert room.enter("t", [5] * n + [9])[0].n_cached == n_cached


PROMPT = [5] * 40
OTHER_WIDTHS = InvariantSizes((1, 2), (4, 8))


def test_where_answers_have_other_bits_they_serve_no_prompt():
    room = Room(batch_sizes=OTHER_WIDTHS, own_cells=True)
    room.enter("a", [1, 2, 3])
    room.decode()  # the answer begins with 7
    room.decode()
    room.leave("a")
    assert room.enter("b", [1, 2, 3, 7, 8]) == [Started(sequence="b", n_cached=3)]


@pytest.mark.parametrize(
    ("limits", "options"),
    [({"batch_sizes": OTHER_WIDTHS, "own_cells": True}, {}), ({}, {"cache_prompt": False})],
    ids=["where answers have other bits", "who wants no cached prompt"],
)
def test_what_was_decoded_still_serves_the_same_sequence_after_it_gave_way(limits, options):
    room = Room(n_slots=1, **limits)
    room.enter("a", [1, 2, 3], **options)
    room.decode()
    room.decode()
    room.slots.preempt(room.slots.running()[0])
    assert room.slots.admit(only_if_idle=False) == [Started(sequence="a", n_cached=4, again=True)]


def test_it_waits_until_all_of_the_beginning_is_there():
    room = Room(n_ctx=200)
    room.enter("s", [*PROMPT, *[6] * 40])
    room.enter("t", [*PROMPT, 7])
    (slot,) = room.slots.running()
    slot.cache.add(PROMPT[:39])
    assert room.slots.admit(only_if_idle=False) == []
    slot.cache.add(PROMPT[39:])
    assert room.slots.admit(only_if_idle=False)[0].n_cached == 40


def test_one_that_finds_nearly_as_much_elsewhere_does_not_wait():
    room = Room(n_slots=3, n_ctx=300)
    room.enter("s", [*PROMPT[:20], 8])
    room.decode()
    room.enter("t", [*PROMPT, 6])
    assert room.enter("u", [*PROMPT, 7])[0].n_cached == 20


@pytest.mark.parametrize("options", [{"cache_prompt": False}, {}])
def test_others_do_not_wait(options):
    room = Room(n_ctx=200)
    room.enter("s", [*PROMPT, 6])
    prompt = [*PROMPT, 7] if options else [*PROMPT[:20], 8, *PROMPT]
    assert len(room.enter("t", prompt, **options)) == 1


def test_when_the_prompt_is_given_up_the_next_one_is_read():
    room = Room(n_ctx=200)
    room.enter("s", [*PROMPT, 6])
    room.enter("t", [*PROMPT, 7])
    room.leave("s")
    assert [each.sequence for each in room.slots.admit(only_if_idle=False)] == ["t"]


# Room


WINDOWS = MemoryTraits(n_rollback=3, checkpoint_bytes=1)
INSTRUCTIONS = list(range(100, 140))


class TestCheckpoints:
    """Memory that cannot be trimmed. Another slot gets the content of a checkpoint."""

    @pytest.fixture
    def room(self):
        return Room(3, 1000, traits=WINDOWS, n_checkpoints=4)

    def ask(self, room, name, question, checkpoints=()):
        asked = engine_sequence(name, [*INSTRUCTIONS, *question])
        asked.checkpoints = checkpoints
        room.slots.add(asked)
        return [(started.sequence, started.n_cached) for started in room.slots.admit(only_if_idle=False)]

    def decode(self, room):
        """Decode prompts up to their next checkpoint."""
        room.slots.pop_edits()
        for slot in room.slots.running():
            if slot.n_to_decode:
                n_cached = len(slot.cache)
                end = n_cached + slot.n_to_next_checkpoint
                room.slots.add_decoded(slot, slot.sequence.context[n_cached:end])
            if not slot.n_to_decode:
                slot.sequence.tokens.append(7)

    @pytest.mark.parametrize("checkpoints", [(40,), ()], ids=["known", "made for the one that comes"])
    def test_agents_that_come_together_read_their_instructions_once(self, room, checkpoints):
        assert self.ask(room, "a", [1, 2], checkpoints=checkpoints) == [("a", 0)]
        assert self.ask(room, "b", [3, 4], checkpoints=checkpoints) == []
        self.decode(room)
        assert self.ask(room, "c", [5, 6]) == [("b", 40), ("c", 40)]

    def test_nobody_waits_where_no_checkpoints_are_kept(self, room):
        room.slots = SlotManager(make_limits(3, 1000, traits=WINDOWS))
        self.ask(room, "a", [1, 2])
        assert self.ask(room, "b", [3, 4]) == [("b", 0)]

    def test_nobody_waits_for_a_beginning_that_was_read_without_a_checkpoint(self, room):
        self.ask(room, "a", [1, 2] * 20)
        room.slots.pop_edits()
        slot = room.slots.running()[0]
        room.slots.add_decoded(slot, slot.sequence.context[:50])
        assert self.ask(room, "b", [3, 4]) == [("b", 0)]

    def test_what_two_texts_had_in_common_the_third_does_not_read_again(self, room):
        for name, question, n_cached in (("a", [1, 2], 0), ("b", [3, 4], 0), ("c", [5, 6], 40)):
            assert self.ask(room, name, question) == [(name, n_cached)], "they come one after the other"
            while any(slot.n_to_decode > 1 for slot in room.slots.running()):
                self.decode(room)

    def test_who_wants_no_cached_prompt_makes_no_checkpoint_for_others(self, room):
        self.ask(room, "a", [1, 2])
        self.decode(room)
        alone = engine_sequence("b", [*INSTRUCTIONS, 3], cache_prompt=False)
        room.slots.add(alone)
        room.slots.admit(only_if_idle=False)
        assert alone.checkpoints == ()

    def test_a_lost_window_is_read_again_from_the_beginning(self, room):
        self.ask(room, "a", [1, 2])
        self.decode(room)
        room.slots.empty([0])
        assert room.slots.pop_edits() == [Trim(0, 0)]
        assert room.slots.running()[0].n_to_decode == 43


LONG, OTHER, THIRD = ([n] * 40 for n in (1, 2, 3))


def text(key, n_tokens=40):
    return Snapshot("text", key, n_tokens)


class TestPromptCache:
    """A text that a slot loses to another goes to host memory. With one pool, so do texts of idle slots."""

    def room(self, n_slots=2, n_ctx=1000, n_stored=500, *, stores_idle=True, step_bytes=0):
        size = PromptCacheSize(n_stored, 1)
        return Room(n_slots, n_ctx, prompt_cache=size, own_cells=not stores_idle, step_bytes=step_bytes)

    def read(self, room, name, tokens):
        """Start a sequence, decode it and let it leave; return the edits."""
        room.enter(name, tokens)
        edits = self.edits(room)
        room.decode()
        room.leave(name)
        return edits

    def edits(self, room):
        """The edits before a step."""
        room.slots.store_idle()
        return room.slots.pop_edits()

    def test_it_goes_on_from_there(self):
        room = self.room()
        self.read(room, "s", LONG)
        self.read(room, "t", OTHER)
        assert room.enter("u", [*LONG, 7, 9]) == [Started(sequence="u", n_cached=40, slot=0)]
        assert self.edits(room) == [Store(1, text(2)), Trim(1, 0), Restore(0, text(1), 40)]

    def test_a_text_alone_stays_in_its_slot(self):
        room = self.room()
        self.read(room, "s", LONG)
        assert room.enter("t", [*LONG, 7, 9])[0].n_cached == 40
        assert room.slots.pop_edits() == []

    def ended_beside_another(self, step_bytes=0):
        room = self.room(step_bytes=step_bytes)
        room.enter("s", LONG)
        room.enter("t", OTHER)
        room.decode()
        room.leave("t")
        return room

    def test_a_text_that_has_ended_beside_another_is_moved_after_some_steps(self):
        room = self.ended_beside_another()
        moved = []
        for _ in range(6):
            room.slots.admit(only_if_idle=False)
            moved.append(Store(1, text(1)) in self.edits(room))
        assert moved == [False, False, False, False, True, False]

    def test_where_moving_takes_long_idle_texts_stay_longer(self):
        room = self.ended_beside_another(step_bytes=20)
        # A byte a second: a step reads five.
        room.slots.learn_moves([text(9)], seconds=40.0, step_seconds=4.0)
        n_steps = 0
        while Store(1, text(1)) not in self.edits(room):
            n_steps += 1
        assert n_steps == 10

    def test_what_is_read_again_more_quickly_is_not_stored(self):
        room = self.room(n_slots=1, stores_idle=False)
        self.read(room, "s", LONG)
        room.slots.learn_moves([text(9)], seconds=40.0, step_seconds=1.0)
        room.slots.price.token_seconds = 1.9
        assert self.read(room, "t", OTHER) == [Trim(0, 0)]
        room.slots.price.token_seconds = 2.1
        assert self.read(room, "u", LONG) == [Store(0, text(1)), Trim(0, 0)]

    @pytest.mark.parametrize(
        ("options", "token_seconds"),
        [({}, 1.9), ({"stores_idle": False}, None), ({"n_stored": 30}, None)],
        ids=["they are read again more quickly", "slots have cells of their own", "there is no room"],
    )
    def test_idle_texts_stay_where(self, options, token_seconds):
        room = self.room(**options)
        self.read(room, "s", LONG)
        if token_seconds:
            room.slots.learn_moves([text(9)], seconds=40.0, step_seconds=1.0)
            room.slots.price.token_seconds = token_seconds
        assert self.read(room, "t", OTHER) == []

    def test_what_another_text_replaces_is_stored(self):
        room = self.room(n_slots=1, stores_idle=False)
        self.read(room, "s", LONG)
        assert self.read(room, "t", OTHER) == [Store(0, text(1)), Trim(0, 0)]
        assert room.enter("u", [*LONG, 5])[0].n_cached == 40

    def test_a_text_of_which_most_stays_is_not_stored(self):
        room = self.room(n_slots=1)
        self.read(room, "s", LONG)
        assert self.read(room, "t", [*LONG[:30], 5]) == [Trim(0, 30)]

    def test_a_text_that_could_only_be_rolled_back_is_stored_and_begun_again(self):
        traits, size = MemoryTraits(n_rollback=64), PromptCacheSize(500, 1)
        slots = SlotManager(make_limits(1, 1000, traits=traits, prompt_cache=size))
        slots.add(engine_sequence("s", range(70)))
        slots.admit(only_if_idle=False)
        slots.pop_edits()
        slots.running()[0].cache.add(range(70))
        slots.remove(slots.sequences["s"])
        slots.add(engine_sequence("t", [*range(10), 99]))
        (started,) = slots.admit(only_if_idle=False)
        assert started.n_cached == len(slots.running()[0].cache) == 0
        assert slots.pop_edits() == [Store(0, text(1, 70)), Trim(0, 0)]

    def test_a_text_that_is_evicted_is_stored(self):
        room = self.room(n_ctx=60, stores_idle=False)
        self.read(room, "s", LONG)
        room.slots.free_up_to(30)
        assert room.slots.pop_edits() == [Store(0, text(1)), Trim(0, 0)]

    def test_what_is_loaded_in_parts_has_its_cells_from_the_beginning(self):
        room = Room(n_ctx=100, prompt_cache=PromptCacheSize(500, 1, n_part=10))
        self.read(room, "s", LONG)
        room.enter("t", OTHER)
        for _ in range(4):
            self.edits(room)
            room.slots.admit(only_if_idle=False)
        room.decode()
        assert room.enter("u", [*LONG, 5])[0].n_cached == 40
        assert len(room.slots.running()[1].cache) == 10
        assert room.slots.free_up_to(60) == 20


class LeavingDraft:
    """The draft of an inline drafter, which counts how often its sequence has left a slot."""

    n_left = 0

    def leave(self):
        self.n_left += 1


def test_an_inline_drafter_hears_when_a_sequence_leaves_its_slot_for_now_or_for_good():
    room, draft = Room(), LeavingDraft()
    room.enter("s")
    room.slots.sequences["s"].drafts.inline = draft
    room.slots.preempt(room.slots.running()[0])
    assert draft.n_left == 1
    room.slots.admit(only_if_idle=False)
    room.leave("s")
    assert draft.n_left == 2


def test_the_oldest_sequence_is_in_front_whatever_its_slot():
    room = Room()
    room.enter("s")
    room.enter("t")
    room.leave("s")
    room.enter("u")
    assert room.running == ["t", "u"]


def test_what_cannot_be_freed_is_not():
    room = Room(n_ctx=20)
    room.enter("s", [1] * 6)
    room.decode()
    assert room.slots.free_up_to(20) == 14
    assert not room.slots.evict_idle()


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


def test_steps_are_timed_in_an_empty_slot():
    assert left(traits=WINDOWS).slots.find_place(4) == TrialPlace(1, 0, [])


def test_steps_are_timed_behind_a_text_that_stays():
    place = left(n_slots=1).slots.find_place(4)
    assert (place.slot, place.n_cached) == (0, 3)


def test_what_is_not_valid_any_more_is_removed_before_steps_are_timed():
    room = left(n_slots=1)
    room.slots.evict_idle()
    assert room.slots.find_place(4) == TrialPlace(0, 0, [Trim(0, 0)])


@pytest.mark.parametrize(
    ("traits", "n_tokens", "n_max"),
    [(PLAIN, 18, 99), (PLAIN, 4, 6), (WINDOWS, 4, 20)],
    ids=["no cells", "a full slot", "a state that cannot be cut back"],
)
def test_without_room_steps_are_not_timed(traits, n_tokens, n_max):
    room = left(n_slots=1, traits=traits, n_ctx_sequence=n_max)
    assert room.slots.find_place(n_tokens) is None
