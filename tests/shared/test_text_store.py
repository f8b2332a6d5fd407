"""The texts that are kept in host memory, what becomes of them, and what moves in which step."""

import itertools
import random

import pytest

from shared.cache_edits import Copy, Forget, Restore, Snapshot, Store, Trim
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.slot_cache import SavedPart, SavedText, SlotCache, common_prefix_length
from shared.text_store import UNLIMITED, PromptCacheSize, TextStore

TEXT, OTHER = list(range(100, 140)), list(range(200, 240))


@pytest.fixture
def prompts():
    """A store with room for 100 tokens."""
    return TextStore(1, PLAIN, PromptCacheSize(100, 1))


def holding(tokens, index=0):
    cache = SlotCache(index)
    cache.add(tokens)
    return cache


def store(prompts, cache, n_keep=0, n_max=UNLIMITED):
    """The edits that store up to `n_max` tokens of a slot in a step, and the number of tokens left."""
    prompts.n_step = n_max
    prompts.begin_step()
    n_left = prompts.store(cache, n_keep, n_min=1)
    return None if n_left is None else (prompts.pop_edits(), n_left)


def load(prompts, text, cache, n_keep):
    prompts.load(cache, text, n_keep)
    return prompts.pop_edits()


def drop(prompts, text):
    prompts.drop(text)
    return prompts.pop_edits()


def part(key, end, start=0):
    return Snapshot("text", key, end, start)


def state(key, n_tokens):
    return Snapshot("state", key, n_tokens)


def keys(text):
    """The keys of a text's checkpoints, by length."""
    return {n: kept.key for n, kept in text.checkpoints.items()}


def texts(prompts):
    return [text.tokens for text in prompts.texts]


def test_the_text_of_a_slot_is_stored_and_stays_there(prompts):
    cache = holding(TEXT, index=3)
    assert store(prompts, cache) == ([Store(3, part(1, 40))], 0)
    assert (texts(prompts), prompts.n_bytes, cache.tokens) == ([TEXT], 40, TEXT)


def test_what_is_no_longer_valid_is_removed_before(prompts):
    cache = holding(TEXT)
    cache.keep(30)
    assert store(prompts, cache) == ([Trim(0, 30), Store(0, part(1, 30))], 0)


def test_a_text_that_is_too_long_is_not_stored(prompts):
    assert store(prompts, holding(list(range(101)))) is None
    assert store(prompts, holding(list(range(100)))) is not None


def test_the_beginning_of_a_stored_text_is_there_already(prompts):
    store(prompts, holding(TEXT))
    assert store(prompts, holding(TEXT[:35])) == ([], 0)
    assert texts(prompts) == [TEXT]


def test_a_text_replaces_its_beginning(prompts):
    store(prompts, holding(TEXT))
    assert store(prompts, holding([*TEXT, 1])) == ([Store(0, part(2, 41)), Forget(1)], 0)
    assert texts(prompts) == [[*TEXT, 1]]


def test_the_least_recently_used_gives_way(prompts):
    first, second, third = ([n, *TEXT] for n in range(3))
    store(prompts, holding(first))
    store(prompts, holding(second))
    load(prompts, prompts.texts[0], SlotCache(0), 10)
    assert store(prompts, holding(third)) == ([Store(0, part(3, 41)), Forget(2)], 0)
    assert texts(prompts) == [first, third]


def test_a_slot_gets_the_beginning_of_a_text_which_stays_stored(prompts):
    store(prompts, holding(TEXT))
    cache = SlotCache(1)
    assert load(prompts, prompts.texts[0], cache, 10) == [Restore(1, part(1, 40), 10)]
    assert (cache.tokens, cache.n_physical, prompts.n_bytes) == (TEXT[:10], 10, 40)


def test_of_many_texts_that_begin_alike_the_one_that_goes_on_longest_is_found(prompts):
    prompts = TextStore(1, PLAIN, PromptCacheSize(1 << 40, 1))
    for n in range(300):
        store(prompts, holding([*TEXT, n // 100, n % 100, 7]))
    question = [*TEXT, 1, 50, 3]
    n, text = prompts.best(question, lambda text: common_prefix_length(text.tokens, question))
    assert (n, text.tokens) == (42, [*TEXT, 1, 50, 7])


def test_a_text_that_serves_less_is_offered_if_the_best_may_not(prompts):
    store(prompts, holding([*TEXT, 1, 1]))
    store(prompts, holding([*TEXT[:35], 2]))
    n, text = prompts.best([*TEXT, 1, 1, 5], lambda text: 0 if len(text.tokens) > 40 else 35)
    assert (n, text.tokens) == (35, [*TEXT[:35], 2])


def test_the_number_of_texts_is_bounded(monkeypatch):
    monkeypatch.setattr("shared.text_store._MAX_TEXTS", 3)
    prompts = TextStore(1, PLAIN, PromptCacheSize(10_000, 1))
    for n in range(5):
        store(prompts, holding([n, *TEXT]))
    assert [tokens[0] for tokens in texts(prompts)] == [2, 3, 4]


class TestParts:
    """Memory of which ranges can be stored, so that texts move in parts."""

    @pytest.fixture
    def prompts(self):
        """A store with room for 100 tokens, in parts of 15."""
        return TextStore(1, PLAIN, PromptCacheSize(100, 1, n_part=15))

    def stored(self, prompts, tokens):
        store(prompts, holding(tokens))
        return prompts.texts[-1]

    def test_a_text_is_stored_part_by_part(self, prompts):
        cache = holding(TEXT)
        assert store(prompts, cache, n_max=15) == ([Store(0, part(1, 15))], 25)
        assert (texts(prompts), prompts.n_bytes) == ([TEXT[:15]], 15)
        assert store(prompts, cache, n_max=15) == ([Store(0, part(2, 30, 15))], 10)
        assert store(prompts, cache, n_max=15) == ([Store(0, part(3, 40, 30))], 0)
        assert (texts(prompts), prompts.n_bytes) == ([TEXT], 40)

    def test_only_the_last_part_is_a_small_one(self, prompts):
        expected = ([Store(0, part(1, 15)), Store(0, part(2, 30, 15))], 10)
        assert store(prompts, holding(TEXT), n_max=35) == expected
        assert store(prompts, holding(TEXT), n_max=9) == ([], 10)

    def test_of_a_text_that_goes_on_only_that_is_stored(self, prompts):
        self.stored(prompts, TEXT)
        assert store(prompts, holding([*TEXT, 1, 2])) == ([Store(0, part(4, 42, 40))], 0)
        assert texts(prompts) == [[*TEXT, 1, 2]]

    def test_a_text_goes_on_where_it_was_left_beside_others_that_begin_alike(self, prompts):
        for other in ([*TEXT[:15], 1], [*TEXT[:15], 999]):
            self.stored(prompts, other)
        cache = holding(TEXT)
        assert [store(prompts, cache, n_max=15)[1] for _ in range(3)] == [25, 10, 0]
        assert texts(prompts)[-1] == TEXT

    def test_parts_that_are_alike_are_texts_of_their_own(self, prompts):
        cache, other = holding(TEXT), holding([*TEXT[:15], 1, 2])
        store(prompts, cache, n_max=15)
        self.stored(prompts, [*TEXT[:15], 0])
        store(prompts, other, n_max=15)
        for text in list(prompts.texts):
            drop(prompts, text)
        assert (texts(prompts), prompts.n_bytes, prompts.best(TEXT, len)) == ([], 0, (0, None))

    def test_all_parts_are_forgotten(self, prompts):
        text = self.stored(prompts, TEXT)
        assert drop(prompts, text) == [Forget(1), Forget(2), Forget(3)]

    @pytest.mark.parametrize(("n_keep", "n"), [(1, 15), (15, 15), (16, 30), (31, 40), (40, 40)])
    def test_a_part_takes_all_its_cells_while_it_is_loaded(self, prompts, n_keep, n):
        assert self.stored(prompts, TEXT).n_cells(n_keep) == n

    def test_a_text_that_is_being_loaded_does_not_give_way(self, prompts):
        text = self.stored(prompts, TEXT)
        self.stored(prompts, OTHER)
        prompts.begin_step(alone=True)
        prompts.caches[0].loading = text
        assert prompts.store(holding([5] * 70)) is None
        assert prompts.store(holding([5] * 60)) == 0
        assert texts(prompts) == [TEXT, [5] * 60]


class TestCheckpoints:
    """Memory that cannot be cut back to every length: a text has the checkpoints of its slot."""

    RECURRENT = MemoryTraits(n_rollback=3, equal_lengths=True)

    @pytest.fixture
    def prompts(self):
        """A store in which a state takes as much as 10 tokens."""
        return TextStore(1, self.RECURRENT, PromptCacheSize(200, 1, 10))

    def holding(self, checkpoints):
        cache = SlotCache(0, self.RECURRENT)
        cache.add(TEXT)
        cache.checkpoints = {n: state(key, n) for n, key in checkpoints.items()}
        return cache

    def test_they_are_counted(self, prompts):
        store(prompts, self.holding({20: 71, 30: 72}))
        assert prompts.n_bytes == 40 + 10 + 2 * 10

    def test_the_slot_gives_them_up(self, prompts):
        cache = self.holding({20: 71, 30: 72})
        store(prompts, cache)
        cache.keep(0)
        assert cache.take_edits() == [Trim(0, 0)], "nothing is forgotten"
        assert keys(prompts.texts[0]) == {20: 71, 30: 72}

    def test_the_slot_keeps_those_of_the_beginning_that_it_keeps(self, prompts):
        cache = self.holding({20: 71, 30: 72})
        store(prompts, cache, n_keep=20)
        assert (keys(cache), keys(prompts.texts[0])) == ({20: 71}, {30: 72})

    def test_with_all_of_a_text_a_slot_gets_them_back(self, prompts):
        store(prompts, self.holding({20: 71}))
        cache = SlotCache(1, self.RECURRENT)
        assert load(prompts, prompts.texts[0], cache, 40) == [Restore(1, part(1, 40), 40), Forget(1)]
        assert (cache.tokens, keys(cache), prompts.texts) == (TEXT, {20: 71}, [])

    def test_a_slot_goes_back_to_one_of_them(self, prompts):
        store(prompts, self.holding({20: 71}))
        cache = SlotCache(1, self.RECURRENT)
        expected = [Restore(1, part(1, 40), 40), Restore(1, state(71, 20), 20)]
        assert load(prompts, prompts.texts[0], cache, 20) == expected
        assert (cache.tokens, cache.n_physical, len(prompts.texts)) == (TEXT[:20], 20, 1)

    def test_of_too_many_those_stay_where_later_prompts_will_depart(self):
        prompts = TextStore(1, self.RECURRENT, PromptCacheSize(1000, 1, 10))
        cache = self.holding({10: 71, 20: 72, 30: 73})
        store(prompts, cache)
        cache.add([1])
        cache.checkpoints, cache.cuts = {35: state(74, 35)}, (20, 35)
        edits, _ = store(prompts, cache)
        assert keys(prompts.texts[0]) == {10: 71, 20: 72, 35: 74}
        assert Forget(73) in edits

    def test_a_text_that_was_dropped_has_none_to_give(self, prompts):
        store(prompts, self.holding({20: 71}))
        text = prompts.texts[0]
        assert drop(prompts, text) == [Forget(1), Forget(71)]
        cache = SlotCache(1, self.RECURRENT)
        assert load(prompts, text, cache, 40) == [Restore(1, part(1, 40), 40)]
        assert cache.checkpoints == {}

    def test_a_slot_that_must_go_back_to_a_checkpoint_first_stores_nothing(self, prompts):
        cache = self.holding({20: 71})
        cache.keep(20)
        assert store(prompts, cache) is None

    @pytest.mark.parametrize(("n_keep", "n"), [(50, 40), (40, 40), (39, 20), (19, 0)])
    def test_a_text_goes_on_at_its_end_or_at_a_checkpoint(self, prompts, n_keep, n):
        store(prompts, self.holding({20: 71}))
        assert prompts.texts[0].reachable(n_keep, can_trim=False) == n


class TestOnDisk:
    """Some texts are on disk, and some only there. Another class writes and reads them."""

    SAVED = SavedText(
        name="a",
        owner="me",
        tokens=TEXT,
        n_prefill=7,
        parts=(SavedPart(kind="text", start=0, end=40, file="a-1", size=40, digest=""),),
    )

    @pytest.fixture
    def prompts(self):
        """A store with room for 100 tokens."""
        return TextStore(1, PLAIN, PromptCacheSize(100, 1, n_least_saved=30))

    def holding(self, tokens, owner="me"):
        cache = holding(tokens)
        cache.owner = owner
        return cache

    def test_a_text_on_disk_takes_no_memory_until_it_is_wanted(self, prompts):
        prompts.add_saved(self.SAVED)
        (text,) = prompts.texts
        assert (text.place, prompts.n_bytes, list(text.keys)) == ("disk", 0, [])
        prompts.fetch(text)
        assert prompts.pop_edits() == []
        assert (text.place, prompts.n_bytes, text.parts) == ("coming", 40, [part(1, 40)])
        assert (prompts.pop_wanted(), prompts.pop_wanted()) == ([text], [])
        assert prompts.arrived(text, is_right=True) == []
        assert (text.place, text.n_prefill, prompts.unsaved()) == ("memory", 7, None)

    def test_others_in_memory_give_way_for_it_and_it_does_not_while_it_comes(self, prompts):
        store(prompts, self.holding(OTHER))
        store(prompts, self.holding(list(range(300, 330))))
        prompts.add_saved(self.SAVED)
        coming = prompts.texts[-1]
        prompts.fetch(coming)
        assert prompts.pop_edits() == [Forget(1)]
        store(prompts, self.holding(list(range(400, 460))))
        assert coming in prompts.texts
        assert prompts.n_bytes == 100

    def test_a_text_that_a_client_restores_is_not_in_the_cache_on_disk(self, prompts):
        text = prompts.expect(self.SAVED)
        prompts.arrived(text, is_right=True)
        assert (text.saved, prompts.unsaved()) == (None, text)

    def test_what_cannot_be_read_is_forgotten(self, prompts):
        prompts.add_saved(self.SAVED)
        (text,) = prompts.texts
        prompts.fetch(text)
        assert prompts.arrived(text, is_right=False) == [Forget(1)]
        assert (prompts.texts, prompts.n_bytes) == ([], 0)

    def test_there_must_be_room_for_it_beside_what_stays(self, prompts):
        prompts.add_saved(self.SAVED)
        store(prompts, self.holding(list(range(300, 370))))
        text, other = prompts.texts
        assert prompts.may_fetch(text)
        prompts.caches[0].loading = other
        prompts.fetch(text)
        assert (text.place, prompts.pop_wanted()) == ("disk", [])

    def test_a_saved_text_that_gives_way_stays_on_disk(self, prompts):
        store(prompts, self.holding(TEXT))
        (text,) = prompts.texts
        assert prompts.unsaved() is text
        prompts.mark_saved(text, self.SAVED)
        store(prompts, self.holding(list(range(300, 390))))
        assert [each.place for each in prompts.texts] == ["disk", "memory"]
        assert prompts.n_bytes == 90

    @pytest.mark.parametrize("is_in_memory", [False, True])
    def test_a_text_that_is_not_on_disk_any_more_is_what_is_left_of_it(self, prompts, is_in_memory):
        prompts.add_saved(self.SAVED)
        (text,) = prompts.texts
        if is_in_memory:
            prompts.fetch(text)
            prompts.arrived(text, is_right=True)
        prompts.pop_used()
        prompts.mark_deleted({"another"})
        assert (prompts.texts, text.saved) == ([text], self.SAVED)
        prompts.mark_deleted({"a"})
        assert prompts.texts == ([text] if is_in_memory else [])
        assert prompts.unsaved() is None, "there was no room for it"
        prompts.touch(text)
        prompts.pop_used()
        assert prompts.unsaved() is (text if is_in_memory else None)

    def test_one_that_has_gone_on_since_was_to_be_written_anyway(self, prompts):
        prompts.add_saved(self.SAVED)
        store(prompts, self.holding([*TEXT, 1]))
        prompts.mark_deleted({"a"})
        assert prompts.unsaved() is prompts.texts[0]

    def test_a_text_is_used_when_it_is_stored_again_and_when_it_is_loaded(self, prompts):
        for tokens in (TEXT, OTHER):
            store(prompts, self.holding(tokens))
        one, other = prompts.pop_used()
        assert prompts.pop_used() == []
        store(prompts, self.holding(TEXT[:35]))
        assert prompts.texts == [other, one]
        assert prompts.pop_used() == [one]
        load(prompts, other, SlotCache(1), 10)
        drop(prompts, one)
        assert prompts.pop_used() == [other]

    def test_of_another_owner_it_counts_as_not_stored(self, prompts):
        prompts.add_saved(self.SAVED)
        store(prompts, self.holding(TEXT, "another"))
        assert {(text.owner, text.place) for text in prompts.texts} == {("me", "disk"), ("another", "memory")}

    def test_so_it_does_in_memory_and_is_left_to_its_owner(self, prompts):
        for tokens, owner in ((TEXT, "me"), (TEXT, "another"), ([*TEXT[:35], 1], "third")):
            store(prompts, self.holding(tokens, owner))
        found = sorted((text.owner, len(text.tokens)) for text in prompts.texts)
        assert found == [("another", 40), ("third", 36)], "there was no room for the first"

    def test_a_private_text_and_a_short_one_are_not_to_be_written(self, prompts):
        store(prompts, self.holding(TEXT, None))
        store(prompts, self.holding(OTHER[:29]))
        assert prompts.unsaved() is None

    def test_what_goes_on_from_a_text_takes_over_its_name(self, prompts):
        prompts.add_saved(self.SAVED)
        store(prompts, self.holding([*TEXT, 1]))
        (text,) = prompts.texts
        assert (text.saved, text.is_saved, prompts.unsaved()) == (self.SAVED, False, text)

    def test_a_text_on_disk_stays_there_while_nothing_of_what_goes_on_from_it_moves(self):
        prompts = TextStore(1, PLAIN, PromptCacheSize(100, 1, n_part=15))
        prompts.add_saved(self.SAVED)
        assert store(prompts, self.holding([*TEXT, 1]), n_max=9) == ([], 41)
        assert [text.saved for text in prompts.texts] == [self.SAVED]

    def test_more_on_disk_than_was_stored_of_it_again_stays_there(self):
        prompts = TextStore(1, PLAIN, PromptCacheSize(100, 1, n_part=15, n_least_saved=10))
        prompts.add_saved(self.SAVED)
        store(prompts, self.holding([*TEXT, 1]), n_max=15)
        assert texts(prompts) == [TEXT[:15]]
        assert prompts.unsaved() is None, "it would be cut short"
        store(prompts, self.holding(list(range(300, 400))))
        assert (prompts.texts[0].place, prompts.texts[0].tokens) == ("disk", TEXT)

    @pytest.mark.parametrize(("more", "is_there"), [(TEXT[15:32], True), (OTHER[:17], False)])
    def test_what_departs_from_a_text_on_disk_is_not_there(self, more, is_there):
        prompts = TextStore(1, PLAIN, PromptCacheSize(100, 1, n_part=15))
        prompts.add_saved(self.SAVED)
        store(prompts, self.holding([*TEXT, 1]), n_max=15)
        store(prompts, self.holding([*TEXT[:15], *more]))
        (text,) = prompts.texts
        assert (len(text.tokens), text.saved) == (32, self.SAVED if is_there else None)

    @pytest.mark.parametrize("seed", range(20))
    def test_what_is_on_disk_of_a_text_begins_with_it_or_it_with_that(self, seed):
        """Any texts may be stored, written and read: no text is written with parts of another."""
        rng, names = random.Random(seed), map(str, itertools.count())
        prompts = TextStore(1, PLAIN, PromptCacheSize(60, 1, n_part=7, n_least_saved=5))
        tokens = []
        for _ in range(200):
            tokens = [*tokens[: rng.randrange(len(tokens) + 1)], *rng.choices((0, 1), k=rng.randint(1, 25))][
                :45
            ]
            store(prompts, self.holding(tokens), n_max=rng.choice((7, 14, UNLIMITED)))
            if rng.random() < 0.5 and (text := prompts.unsaved()):
                saved = text.to_save(text.saved.name if text.saved else next(names))
                parts = tuple(SavedPart.of(each, "", 1, "") for each in text.snapshots)
                prompts.mark_saved(text, saved.model_copy(update={"parts": parts}))
            for text in prompts.texts:
                if text.place == "disk" and rng.random() < 0.1:
                    prompts.fetch(text)
            for text in prompts.pop_wanted():
                prompts.arrived(text, is_right=True)
            for text in (text for text in prompts.texts if text.saved):
                n = min(len(text.tokens), len(text.saved.tokens))
                assert text.tokens[:n] == text.saved.tokens[:n]

    def test_a_longer_state_of_a_text_replaces_it(self, prompts):
        longer = self.SAVED.model_copy(update={"tokens": [*TEXT, 1]})
        for saved in (self.SAVED, longer, longer):
            prompts.add_saved(saved)
        assert texts(prompts) == [longer.tokens]

    def test_of_more_than_there_may_be_those_that_were_used_last_are_known(self, prompts, monkeypatch):
        monkeypatch.setattr("shared.text_store._MAX_TEXTS", 3)
        for n in range(5):
            prompts.add_saved(self.SAVED.model_copy(update={"name": str(n), "tokens": [n, *TEXT]}))
        assert [text.saved.name for text in prompts.texts] == ["2", "3", "4"]

    @pytest.mark.parametrize(("n_bytes", "fits"), [(59, False), (60, True)])
    def test_checkpoints_of_a_text_on_disk_are_known_and_the_room_that_they_take(self, n_bytes, fits):
        checkpoint = SavedPart(kind="state", start=0, end=20, file="a-2", size=10, digest="")
        prompts = TextStore(1, PLAIN, PromptCacheSize(n_bytes, 1, 10))
        prompts.add_saved(self.SAVED.model_copy(update={"parts": (*self.SAVED.parts, checkpoint)}))
        (text,) = prompts.texts
        assert (text.reachable(25, can_trim=False), prompts.may_fetch(text)) == (20, fits)

    def test_checkpoints_of_the_beginning_stay_with_what_goes_on_from_it(self):
        prompts = TextStore(1, MemoryTraits(n_rollback=0, n_step_checkpoints=1), PromptCacheSize(1000, 1, 10))
        (cache,) = prompts.caches
        for n in (20, 30):
            cache.add(TEXT[len(cache) : n])
            prompts.checkpoint(cache, n_max=2)
        cache.add(TEXT[30:])
        store(prompts, cache)
        cache.add([1])
        edits, _ = store(prompts, cache)
        assert keys(prompts.texts[0]) == {20: 1, 30: 2}
        assert [edit for edit in edits if isinstance(edit, Forget)] == [Forget(3)]


# What moves between slots and host memory, a part in each step

MOVED = [1] * 40


def stored(n_slots=2, n_part=15):
    """A store with the text. All slots are empty."""
    made = TextStore(n_slots, PLAIN, PromptCacheSize(500, 1, n_part=n_part))
    made.caches[0].add(MOVED)
    made.begin_step(alone=True)
    assert made.store(made.caches[0]) == 0
    made.empty(made.caches[0])
    made.pop_edits()
    made.begin_step()
    return made, made.texts[0]


def test_a_part_is_loaded_in_a_step_and_the_room_for_all_of_them_is_kept():
    moving, text = stored()
    moving.load(moving.caches[1], text, 38)
    edits, n_held = [moving.pop_edits()], [moving.n_cells]
    while moving.caches[1].loading:
        moving.begin_step()
        edits.append(moving.pop_edits())
        n_held.append(moving.n_cells)
    assert edits == [
        [Restore(1, part(1, 15, 0), 15)],
        [Restore(1, part(2, 30, 15), 30)],
        [Restore(1, part(3, 40, 30), 38)],
    ]
    assert (n_held, moving.caches[1].tokens) == ([40, 40, 38], MOVED[:38])


def test_alone_all_parts_move_at_once():
    moving, text = stored()
    moving.begin_step(alone=True)
    moving.load(moving.caches[1], text, 40)
    assert (moving.caches[1].tokens, moving.caches[1].loading) == (MOVED, None)


def test_what_stores_and_loads_shares_the_tokens_of_a_step():
    moving, text = stored()
    moving.caches[0].add([2] * 40)
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
    assert moving.pop_edits() == [Restore(1, part(1, 40, 0), 40), Copy(1, 2, 35)]


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_whole_text_can_leave_memory_in_the_step_in_which_it_is_loaded(is_saved):
    moving = TextStore(2, PLAIN, PromptCacheSize(50, 1))
    moving.caches[0].add(MOVED)
    moving.caches[0].owner = "me"
    moving.store(moving.caches[0])
    moving.empty(moving.caches[0])
    moving.pop_edits()
    (text,) = moving.texts
    if is_saved:
        moving.mark_saved(text, TestOnDisk.SAVED)
    moving.caches[1].add([2] * 40)
    moving.store(moving.caches[1])
    moving.load(moving.caches[0], text, 40)
    moving.caches[1].keep(0)
    expected = [Store(1, part(2, 40, 0)), Trim(1, 0), Restore(0, part(1, 40, 0), 40), Forget(1)]
    assert moving.pop_edits() == expected


def test_short_texts_are_not_stored():
    moving = TextStore(1, PLAIN, PromptCacheSize(500, 1))
    moving.caches[0].add([1] * 31)
    assert moving.store(moving.caches[0]) is None
