"""What moves between slots and the prompt cache, a part in each step."""

from shared.cache_edits import Copy, Forget, Restore, Snapshot, Store, Trim
from shared.llama.memory_traits import PLAIN
from shared.prompt_cache import PromptCacheSize
from shared.slot_table import SlotTable

TEXT, OTHER = [1] * 40, [2] * 40


def part(key, start, end):
    return Snapshot("text", key, end, start)


def table(n_slots=2, n_part=15):
    """Slot 0 holds a text."""
    table = SlotTable(n_slots, PLAIN, PromptCacheSize(500, 1, n_part=n_part))
    table.caches[0].add(TEXT)
    return table


def stored(n_slots=2, n_part=15):
    """The text is stored, all slots are empty."""
    made = table(n_slots, n_part)
    made.begin_step(alone=True)
    assert made.store(made.caches[0]) == 0
    made.empty(made.caches[0])
    made.pop_edits()
    made.begin_step()
    return made, made.texts.texts[0]


def test_a_part_is_loaded_in_a_step_and_the_room_for_all_of_them_is_kept():
    moving, text = stored()
    moving.load(moving.caches[1], text, 38)
    edits, n_held = [moving.pop_edits()], [moving.n_cells]
    while moving.caches[1].loading:
        moving.begin_step()
        edits.append(moving.pop_edits())
        n_held.append(moving.n_cells)
    assert edits == [
        [Restore(1, part(1, 0, 15), 15)],
        [Restore(1, part(2, 15, 30), 30)],
        [Restore(1, part(3, 30, 40), 38)],
    ]
    assert (n_held, moving.caches[1].tokens) == ([40, 40, 38], TEXT[:38])


def test_alone_all_parts_move_at_once():
    moving, text = stored()
    moving.begin_step(alone=True)
    moving.load(moving.caches[1], text, 40)
    assert (moving.caches[1].tokens, moving.caches[1].loading) == (TEXT, None)


def test_what_stores_and_loads_shares_the_tokens_of_a_step():
    moving, text = stored()
    moving.caches[0].add(OTHER)
    moving.store(moving.caches[0])
    moving.load(moving.caches[1], text, 40)
    assert len(moving.caches[1]) == 0
    moving.begin_step()
    assert len(moving.caches[1]) == 15


def test_a_slot_is_not_stored_before_its_text_is_there():
    moving, text = stored(n_part=0)
    moving.load(moving.caches[1], text, 40)
    assert moving.store(moving.caches[1]) is None


def test_what_is_loaded_can_be_shared_before_the_next_step():
    moving, text = stored(n_slots=3, n_part=0)
    moving.load(moving.caches[1], text, 40)
    moving.finish_loads()
    moving.copy(moving.caches[1], moving.caches[2], 35)
    assert moving.pop_edits() == [Restore(1, part(1, 0, 40), 40), Copy(1, 2, 35)]


def test_a_whole_text_can_be_dropped_in_the_step_in_which_it_is_loaded():
    moving = SlotTable(2, PLAIN, PromptCacheSize(50, 1))
    moving.caches[0].add(TEXT)
    moving.store(moving.caches[0])
    moving.empty(moving.caches[0])
    moving.pop_edits()
    moving.load(moving.caches[0], moving.texts.texts[0], 40)
    moving.caches[1].add(OTHER)
    moving.store(moving.caches[1])
    moving.caches[1].keep(0)
    assert moving.pop_edits() == [
        Store(1, part(2, 0, 40)),
        Trim(1, 0),
        Restore(0, part(1, 0, 40), 40),
        Forget(1),
    ]


def test_short_texts_are_not_stored():
    moving = SlotTable(1, PLAIN, PromptCacheSize(500, 1))
    moving.caches[0].add([1] * 31)
    assert moving.store(moving.caches[0]) is None
