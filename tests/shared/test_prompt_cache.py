"""Which texts are kept in host memory, and what becomes of them."""

import itertools

import pytest

from shared.cache_edits import Forget, Restore, Snapshot, Store, Trim
from shared.llama.memory_traits import MemoryTraits
from shared.prompt_cache import PromptCache, PromptCacheSize
from shared.saved_text import SavedPart, SavedText
from shared.slot_cache import SlotCache, TextPlace, common_prefix_length

TEXT, OTHER = list(range(100, 140)), list(range(200, 240))


@pytest.fixture
def prompts():
    """Room for 100 tokens."""
    return PromptCache(PromptCacheSize(100, 1), itertools.count(1))


def holding(tokens, index=0):
    cache = SlotCache(index)
    cache.add(tokens)
    return cache


def part(key, end, start=0):
    return Snapshot("text", key, end, start)


def state(key, n_tokens):
    return Snapshot("state", key, n_tokens)


def keys(text):
    """The keys of its checkpoints."""
    return {n: kept.key for n, kept in text.checkpoints.items()}


def texts(prompts):
    return [text.tokens for text in prompts.texts]


def test_the_text_of_a_slot_is_stored_and_stays_there(prompts):
    cache = holding(TEXT, index=3)
    assert prompts.store(cache) == ([Store(3, part(1, 40))], 0)
    assert (texts(prompts), prompts.n_bytes, cache.tokens) == ([TEXT], 40, TEXT)


def test_what_is_no_longer_valid_is_removed_before(prompts):
    cache = holding(TEXT)
    cache.keep(30)
    assert prompts.store(cache) == ([Trim(0, 30), Store(0, part(1, 30))], 0)


def test_a_text_that_is_too_long_is_not_stored(prompts):
    assert prompts.store(holding(list(range(101)))) is None
    assert prompts.store(holding(list(range(100)))) is not None


def test_the_beginning_of_a_stored_text_is_there_already(prompts):
    prompts.store(holding(TEXT))
    assert prompts.store(holding(TEXT[:35])) == ([], 0)
    assert texts(prompts) == [TEXT]


def test_a_text_replaces_its_beginning(prompts):
    prompts.store(holding(TEXT))
    assert prompts.store(holding([*TEXT, 1])) == ([Forget(1), Store(0, part(2, 41))], 0)
    assert texts(prompts) == [[*TEXT, 1]]


def test_the_least_recently_used_gives_way(prompts):
    first, second, third = ([n, *TEXT] for n in range(3))
    prompts.store(holding(first))
    prompts.store(holding(second))
    prompts.load(prompts.texts[0], SlotCache(0), 10)
    assert prompts.store(holding(third)) == ([Forget(2), Store(0, part(3, 41))], 0)
    assert texts(prompts) == [first, third]


def test_a_slot_gets_the_beginning_of_a_text_which_stays_stored(prompts):
    prompts.store(holding(TEXT))
    cache = SlotCache(1)
    assert prompts.load(prompts.texts[0], cache, 10) == [Restore(1, part(1, 40), 10)]
    assert (cache.tokens, cache.n_physical, prompts.n_bytes) == (TEXT[:10], 10, 40)


def test_of_many_texts_that_begin_alike_the_one_that_goes_on_longest_is_found(prompts):
    prompts = PromptCache(PromptCacheSize(1 << 40, 1), itertools.count(1))
    for n in range(300):
        prompts.store(holding([*TEXT, n // 100, n % 100, 7]))
    question = [*TEXT, 1, 50, 3]
    n, text = prompts.best(question, lambda text: common_prefix_length(text.tokens, question))
    assert (n, text.tokens) == (42, [*TEXT, 1, 50, 7])


def test_a_text_that_serves_less_is_offered_if_the_best_may_not(prompts):
    prompts.store(holding([*TEXT, 1, 1]))
    prompts.store(holding([*TEXT[:35], 2]))
    n, text = prompts.best([*TEXT, 1, 1, 5], lambda text: 0 if len(text.tokens) > 40 else 35)
    assert (n, text.tokens) == (35, [*TEXT[:35], 2])


def test_the_number_of_texts_is_bounded(monkeypatch):
    monkeypatch.setattr("shared.prompt_cache._MOST_TEXTS", 3)
    prompts = PromptCache(PromptCacheSize(10_000, 1), itertools.count(1))
    for n in range(5):
        prompts.store(holding([n, *TEXT]))
    assert [tokens[0] for tokens in texts(prompts)] == [2, 3, 4]


class TestParts:
    """Memory of which ranges can be stored: texts move in parts."""

    @pytest.fixture
    def prompts(self):
        """Room for 100 tokens, in parts of 15."""
        return PromptCache(PromptCacheSize(100, 1, n_part=15), itertools.count(1))

    def stored(self, prompts, tokens):
        prompts.store(holding(tokens))
        return prompts.texts[-1]

    def test_a_text_is_stored_part_by_part(self, prompts):
        cache = holding(TEXT)
        assert prompts.store(cache, n_most=15) == ([Store(0, part(1, 15))], 25)
        assert (texts(prompts), prompts.n_bytes) == ([TEXT[:15]], 15)
        assert prompts.store(cache, n_most=15) == ([Store(0, part(2, 30, 15))], 10)
        assert prompts.store(cache, n_most=15) == ([Store(0, part(3, 40, 30))], 0)
        assert (texts(prompts), prompts.n_bytes) == ([TEXT], 40)

    def test_only_the_last_part_is_a_small_one(self, prompts):
        assert prompts.store(holding(TEXT), n_most=35) == (
            [Store(0, part(1, 15)), Store(0, part(2, 30, 15))],
            10,
        )
        assert prompts.store(holding(TEXT), n_most=9) == ([], 10)

    def test_of_a_text_that_goes_on_only_that_is_stored(self, prompts):
        self.stored(prompts, TEXT)
        assert prompts.store(holding([*TEXT, 1, 2])) == ([Store(0, part(4, 42, 40))], 0)
        assert texts(prompts) == [[*TEXT, 1, 2]]

    def test_a_text_goes_on_where_it_was_left_beside_others_that_begin_alike(self, prompts):
        for other in ([*TEXT[:15], 1], [*TEXT[:15], 999]):
            self.stored(prompts, other)
        cache = holding(TEXT)
        assert [prompts.store(cache, n_most=15)[1] for _ in range(3)] == [25, 10, 0]
        assert texts(prompts)[-1] == TEXT

    def test_parts_that_are_alike_are_texts_of_their_own(self, prompts):
        cache, other = holding(TEXT), holding([*TEXT[:15], 1, 2])
        prompts.store(cache, n_most=15)
        self.stored(prompts, [*TEXT[:15], 0])
        prompts.store(other, n_most=15)
        for text in list(prompts.texts):
            prompts.drop(text)
        assert (texts(prompts), prompts.n_bytes, prompts.best(TEXT, len)) == ([], 0, (0, None))

    def test_all_parts_are_forgotten(self, prompts):
        text = self.stored(prompts, TEXT)
        assert prompts.drop(text) == [Forget(1), Forget(2), Forget(3)]

    @pytest.mark.parametrize(("n_keep", "n"), [(1, 15), (15, 15), (16, 30), (31, 40), (40, 40)])
    def test_a_part_takes_all_its_cells_while_it_is_loaded(self, prompts, n_keep, n):
        assert self.stored(prompts, TEXT).n_cells(n_keep) == n

    def test_a_text_that_is_being_loaded_does_not_give_way(self, prompts):
        text = self.stored(prompts, TEXT)
        self.stored(prompts, OTHER)
        assert prompts.store(holding([5] * 70), held=[text]) is None
        assert prompts.store(holding([5] * 60), held=[text]) is not None
        assert texts(prompts) == [TEXT, [5] * 60]


class TestCheckpoints:
    """Memory that cannot be cut back to any length: a text has the checkpoints of its slot."""

    RECURRENT = MemoryTraits(n_rollback=3, equal_lengths=True)

    @pytest.fixture
    def prompts(self):
        """A state takes as much as 10 tokens; keys begin at 10."""
        return PromptCache(PromptCacheSize(200, 1, 10), itertools.count(10))

    def holding(self, checkpoints):
        cache = SlotCache(0, self.RECURRENT)
        cache.add(TEXT)
        cache.checkpoints = {n: state(key, n) for n, key in checkpoints.items()}
        return cache

    def test_they_are_counted(self, prompts):
        prompts.store(self.holding({20: 1, 30: 2}))
        assert prompts.n_bytes == 40 + 10 + 2 * 10

    def test_the_slot_gives_them_up(self, prompts):
        cache = self.holding({20: 1, 30: 2})
        prompts.store(cache)
        cache.keep(0)
        assert cache.take_edits() == [Trim(0, 0)], "nothing is forgotten"
        assert keys(prompts.texts[0]) == {20: 1, 30: 2}

    def test_the_slot_keeps_those_of_the_beginning_that_it_keeps(self, prompts):
        cache = self.holding({20: 1, 30: 2})
        prompts.store(cache, n_keep=20)
        assert (keys(cache), keys(prompts.texts[0])) == ({20: 1}, {30: 2})

    def test_with_all_of_a_text_a_slot_gets_them_back(self, prompts):
        prompts.store(self.holding({20: 1}))
        cache = SlotCache(1, self.RECURRENT)
        assert prompts.load(prompts.texts[0], cache, 40) == [Restore(1, part(10, 40), 40), Forget(10)]
        assert (cache.tokens, keys(cache), prompts.texts) == (TEXT, {20: 1}, [])

    def test_a_slot_goes_back_to_one_of_them(self, prompts):
        prompts.store(self.holding({20: 1}))
        cache = SlotCache(1, self.RECURRENT)
        assert prompts.load(prompts.texts[0], cache, 20) == [
            Restore(1, part(10, 40), 40),
            Restore(1, state(1, 20), 20),
        ]
        assert (cache.tokens, cache.n_physical, len(prompts.texts)) == (TEXT[:20], 20, 1)

    def test_of_too_many_those_stay_where_later_prompts_will_depart(self):
        prompts = PromptCache(PromptCacheSize(1000, 1, 10), itertools.count(10))
        cache = self.holding({10: 1, 20: 2, 30: 3})
        prompts.store(cache)
        cache.add([1])
        cache.checkpoints, cache.cuts = {35: state(4, 35)}, (20, 35)
        edits, _ = prompts.store(cache)
        assert keys(prompts.texts[0]) == {10: 1, 20: 2, 35: 4}
        assert Forget(3) in edits

    def test_a_text_that_was_dropped_has_none_to_give(self, prompts):
        prompts.store(self.holding({20: 1}))
        text = prompts.texts[0]
        assert prompts.drop(text) == [Forget(10), Forget(1)]
        cache = SlotCache(1, self.RECURRENT)
        assert prompts.load(text, cache, 40) == [Restore(1, part(10, 40), 40)]
        assert cache.checkpoints == {}

    def test_a_slot_that_must_go_back_to_a_checkpoint_first_stores_nothing(self, prompts):
        cache = self.holding({20: 1})
        cache.keep(20)
        assert prompts.store(cache) is None

    @pytest.mark.parametrize(("n_keep", "n"), [(50, 40), (40, 40), (39, 20), (19, 0)])
    def test_a_text_goes_on_at_its_end_or_at_a_checkpoint(self, prompts, n_keep, n):
        prompts.store(self.holding({20: 1}))
        assert prompts.texts[0].reachable(n_keep, can_trim=False) == n


class TestOnDisk:
    """Texts of which some are on disk, and some only there: who writes and reads them is somebody else."""

    SAVED = SavedText(
        name="a",
        owner="me",
        tokens=TEXT,
        n_prefill=7,
        parts=(SavedPart(kind="text", start=0, end=40, file="a-1", size=40, digest=""),),
    )

    @pytest.fixture
    def prompts(self):
        """Room for 100 tokens."""
        return PromptCache(PromptCacheSize(100, 1, n_least_saved=30), itertools.count(1))

    def holding(self, tokens, owner="me"):
        cache = holding(tokens)
        cache.owner = owner
        return cache

    def test_a_text_on_disk_takes_no_memory_until_it_is_wanted(self, prompts):
        prompts.adopt(self.SAVED)
        (text,) = prompts.texts
        assert (text.place, prompts.n_bytes, list(text.keys)) == (TextPlace.DISK, 0, [])
        assert prompts.fetch(text) == []
        assert (text.place, prompts.n_bytes, text.parts) == (TextPlace.COMING, 40, [part(1, 40)])
        assert (prompts.pop_wanted(), prompts.pop_wanted()) == ([text], [])
        assert prompts.arrived(text, is_right=True) == []
        assert (text.place, text.n_prefill, prompts.unsaved()) == (TextPlace.MEMORY, 7, None)

    def test_others_in_memory_give_way_for_it_and_it_does_not_while_it_comes(self, prompts):
        prompts.store(self.holding(OTHER))
        prompts.store(self.holding(list(range(300, 330))))
        prompts.adopt(self.SAVED)
        coming = prompts.texts[-1]
        assert prompts.fetch(coming) == [Forget(1)]
        prompts.store(self.holding(list(range(400, 460))))
        assert coming in prompts.texts
        assert prompts.n_bytes == 100

    def test_what_cannot_be_read_is_forgotten(self, prompts):
        prompts.adopt(self.SAVED)
        (text,) = prompts.texts
        prompts.fetch(text)
        assert prompts.arrived(text, is_right=False) == [Forget(1)]
        assert (prompts.texts, prompts.n_bytes) == ([], 0)

    def test_there_must_be_room_for_it_beside_what_stays(self, prompts):
        prompts.adopt(self.SAVED)
        prompts.store(self.holding(list(range(300, 370))))
        text, other = prompts.texts
        assert prompts.may_fetch(text)
        assert not prompts.may_fetch(text, [other])

    def test_a_saved_text_that_gives_way_stays_on_disk(self, prompts):
        prompts.store(self.holding(TEXT))
        (text,) = prompts.texts
        assert prompts.unsaved() is text
        prompts.mark_saved(text, self.SAVED)
        prompts.store(self.holding(list(range(300, 390))))
        assert [each.place for each in prompts.texts] == [TextPlace.DISK, TextPlace.MEMORY]
        assert prompts.n_bytes == 90

    @pytest.mark.parametrize("is_in_memory", [False, True])
    def test_a_text_that_is_not_on_disk_any_more_is_what_is_left_of_it(self, prompts, is_in_memory):
        prompts.adopt(self.SAVED)
        (text,) = prompts.texts
        if is_in_memory:
            prompts.fetch(text)
            prompts.arrived(text, is_right=True)
        assert prompts.lose({"another"}) == []
        assert prompts.lose({"a"}) == ([text] if is_in_memory else [])
        assert prompts.texts == ([text] if is_in_memory else [])
        assert prompts.unsaved() is (text if is_in_memory else None)
        assert prompts.unsaved(but={text}) is None

    def test_one_that_has_gone_on_since_was_to_be_written_anyway(self, prompts):
        prompts.adopt(self.SAVED)
        prompts.store(self.holding([*TEXT, 1]))
        assert prompts.lose({"a"}) == []
        assert prompts.unsaved() is prompts.texts[0]

    def test_a_text_is_used_when_it_is_stored_again_and_when_it_is_loaded(self, prompts):
        for tokens in (TEXT, OTHER):
            prompts.store(self.holding(tokens))
        one, other = prompts.pop_used()
        assert prompts.pop_used() == []
        prompts.store(self.holding(TEXT[:35]))
        assert prompts.texts == [other, one]
        assert prompts.pop_used() == [one]
        prompts.load(other, SlotCache(1), 10)
        prompts.drop(one)
        assert prompts.pop_used() == [other]

    def test_of_another_owner_it_counts_as_not_stored(self, prompts):
        prompts.adopt(self.SAVED)
        prompts.store(self.holding(TEXT, "another"))
        assert {(text.owner, text.place) for text in prompts.texts} == {
            ("me", TextPlace.DISK),
            ("another", TextPlace.MEMORY),
        }

    def test_so_it_does_in_memory_and_is_left_to_its_owner(self, prompts):
        for tokens, owner in ((TEXT, "me"), (TEXT, "another"), ([*TEXT[:35], 1], "third")):
            prompts.store(self.holding(tokens, owner))
        found = sorted((text.owner, len(text.tokens)) for text in prompts.texts)
        assert found == [("another", 40), ("third", 36)], "there was no room for the first"

    def test_a_private_text_and_a_short_one_are_not_to_be_written(self, prompts):
        prompts.store(self.holding(TEXT, None))
        prompts.store(self.holding(OTHER[:29]))
        assert prompts.unsaved() is None

    def test_what_goes_on_from_a_text_takes_over_its_name(self, prompts):
        prompts.adopt(self.SAVED)
        prompts.store(self.holding([*TEXT, 1]))
        (text,) = prompts.texts
        assert (text.saved, text.is_saved, prompts.unsaved()) == (self.SAVED, False, text)

    def test_a_longer_state_of_a_text_replaces_it(self, prompts):
        longer = self.SAVED.model_copy(update={"tokens": [*TEXT, 1]})
        for saved in (self.SAVED, longer, longer):
            prompts.adopt(saved)
        assert texts(prompts) == [longer.tokens]

    def test_checkpoints_of_the_beginning_stay_with_what_goes_on_from_it(self):
        prompts = PromptCache(PromptCacheSize(1000, 1, 10), itertools.count(10))
        traits = MemoryTraits(n_rollback=0, n_step_checkpoints=1)
        cache = SlotCache(0, traits)
        for n, key in ((20, 1), (30, 2)):
            cache.add(TEXT[len(cache) : n])
            cache.store(key)
        cache.add(TEXT[30:])
        prompts.store(cache)
        cache.add([1])
        edits, _ = prompts.store(cache)
        assert keys(prompts.texts[0]) == {20: 1, 30: 2}
        assert [edit for edit in edits if isinstance(edit, Forget)] == [Forget(10)]
