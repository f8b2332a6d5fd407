import pytest

from lead.engine.reuse import MovePrice, Prefixes
from lead.engine.slot import Slot
from shared.cache_edits import Snapshot
from shared.llama.memory_traits import PLAIN
from shared.slot_cache import SlotCache
from shared.text_store import UNLIMITED, PromptCacheSize, TextStore
from tests.toy_engine import engine_sequence, make_limits

TEXT = list(range(50))
PART = 32 << 20
GB = 10**9


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


def unlearned(token_bytes, step_bytes):
    return MovePrice(PromptCacheSize(100 * GB, token_bytes, n_part=PART // token_bytes), step_bytes)


def price(token_bytes, step_bytes, step_seconds, part_seconds):
    """The price of a link that takes `part_seconds` for a part."""
    made = unlearned(token_bytes, step_bytes)
    made.learn([Snapshot("text", 1, PART // token_bytes)], part_seconds, step_seconds)
    return made


def test_until_something_has_moved_it_is_as_on_a_cpu():
    made = unlearned(25_000, GB)
    assert (made.idle_steps, made.n_step, made.pays(1000)) == (4, PART // 25_000, True)


def test_where_texts_are_stored_as_a_whole_any_of_them_moves_in_a_step():
    made = MovePrice(PromptCacheSize(GB, 25_000), GB)
    made.learn([Snapshot("text", 1, 1000)], 0.01, 0.03)
    assert made.n_step == UNLIMITED


@pytest.mark.parametrize(
    ("measured", "idle_steps", "n_parts"),
    [
        pytest.param((25_000, 770_000_000, 0.027, 0.003), 5.1, 2, id="0.4G on two cores"),
        pytest.param((327_680, 40 * GB, 0.025, 0.0014), 134, 4, id="70B on two GPUs, pinned memory"),
        pytest.param((327_680, 40 * GB, 0.025, 0.006), 572, 1, id="70B on two GPUs, other memory"),
        pytest.param((32_768, 2 * GB, 0.003, 0.0014), 56, 1, id="1B on a GPU"),
    ],
)
def test_a_text_stays_until_it_has_cost_others_as_much_as_moving_it(measured, idle_steps, n_parts):
    made = price(*measured)
    assert made.idle_steps == pytest.approx(idle_steps, rel=0.02)
    assert made.n_step == n_parts * (PART // measured[0])


def test_a_price_of_nothing_is_no_error_and_does_not_last():
    made = price(25_000, GB, 0.03, 0.0)
    assert made.idle_steps == 4
    for _ in range(20):
        made.learn([Snapshot("text", 1, PART // 25_000)], 0.003, 0.03)
    assert made.n_step == 2 * (PART // 25_000)


def test_one_small_slow_text_changes_little():
    made = price(25_000, 40 * GB, 0.025, 0.002)
    before = made.idle_steps
    made.learn([Snapshot("text", 1, 1000)], 0.0015 + 0.002, 0.025)
    assert made.idle_steps < 2 * before


def test_what_is_read_again_as_quickly_is_not_moved():
    made = price(131_072, 8 * GB, 0.01, 0.3)  # thousands of small copies: V without flash attention
    assert made.pays(1000), "how fast prompts are read is not known"
    made.token_seconds = 0.0002
    assert not made.pays(1000)
    made.token_seconds = 0.02
    assert made.pays(1000)


def test_the_state_of_a_short_text_costs_more_than_its_tokens():
    made = MovePrice(PromptCacheSize(100 * GB, 1000, 50_000_000), 0)
    made.learn([Snapshot("text", 1, 1000)], 0.02, 0.03)
    made.token_seconds = 0.0002
    assert not made.pays(100)
    assert made.pays(1000)


def test_a_slow_moment_does_not_decide_for_ever():
    made = price(131_072, 8 * GB, 0.01, 0.3)
    made.token_seconds = 0.0015
    n_lost = 0
    while not made.pays(1000):
        made.forget()
        n_lost += 1
    assert 1 <= n_lost <= 10


def test_a_machine_that_slept_during_a_move_changes_the_price_little():
    made = price(131_072, 8 * GB, 0.01, 0.003)
    made.token_seconds = 0.0015
    for seconds in (*[0.003] * 10, 3 * 3600.0):
        before = made.idle_steps
        made.learn([Snapshot("text", 1, 256)], seconds, 0.01)
    assert made.pays(1000)
    assert made.idle_steps < 4 * before


@pytest.mark.parametrize("step_seconds", [1e-9, 1e9])
def test_whatever_a_step_takes_idle_texts_leave_and_no_step_stalls(step_seconds):
    made = price(131_072, 8 * GB, step_seconds, 0.01)
    assert 4 <= made.idle_steps <= 10_000
    assert made.n_step <= 64 * (PART // 131_072)


def test_a_move_of_nothing_says_nothing():
    made = unlearned(25_000, GB)
    made.learn([], 0.003, 0.03)
    assert made.pays(1000)
