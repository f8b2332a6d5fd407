"""How much of what slots and the prompt cache hold serves a sequence."""

import pytest

from lead.engine.prefixes import Prefixes
from lead.engine.slot import Slot
from shared.llama.memory_traits import PLAIN
from shared.slot_cache import SlotCache
from shared.text_store import PromptCacheSize, TextStore
from tests.toy_engine import engine_sequence, make_limits

TEXT = list(range(50))


class Cached:
    """One slot that holds `tokens`, and a prompt cache."""

    def __init__(self, tokens=(), traits=PLAIN, **limits):
        self.slot = Slot(SlotCache(0, traits, n_prefill=10))
        self.slot.cache.add(tokens)
        self.stored = TextStore(0, traits, PromptCacheSize(1000, 1))
        self.prefixes = Prefixes([self.slot], self.stored, make_limits(traits=traits, **limits))

    def store(self, tokens):
        cache = SlotCache(0)
        cache.add(tokens)
        self.stored.store(cache)


def test_the_last_token_is_decoded_for_its_logits():
    cached = Cached(TEXT)
    assert cached.prefixes.reusable(cached.slot, engine_sequence("s", TEXT)) == 49


def test_who_wants_no_cached_prompt_reuses_none():
    cached, alone = Cached(TEXT), engine_sequence("s", [*TEXT, 99], cache_prompt=False)
    cached.store(TEXT)
    assert cached.prefixes.reusable(cached.slot, alone) == cached.prefixes.copyable(cached.slot, alone) == 0
    assert cached.prefixes.loadable(alone) == (0, None)


def test_nobody_waits_for_a_prefix_that_is_stored():
    cached = Cached()
    cached.slot.sequence = engine_sequence("s", [*TEXT, 99])
    waiting = engine_sequence("s", [*TEXT, 98])
    assert cached.prefixes.is_prefix_being_decoded(waiting)
    cached.store(TEXT)
    assert not cached.prefixes.is_prefix_being_decoded(waiting)


@pytest.mark.parametrize(("n_stored", "n"), [(42, 10), (43, 43)])
def test_a_stored_text_is_loaded_if_that_saves_more_than_its_price(n_stored, n):
    cached = Cached(TEXT[:10])
    cached.store(TEXT[:n_stored])
    assert cached.prefixes.best(cached.slot, engine_sequence("s", [*TEXT, 99]), 1000).n == n
