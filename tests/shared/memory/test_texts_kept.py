from dataclasses import replace

import pytest

from shared.llama.memory_plan import ContextNeeds
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.memory import texts_kept
from shared.memory.model_outline import MemoryProbe
from shared.memory.plan_memory import plan_memory
from shared.memory.texts_kept import describe_checkpoints, n_prompt_checkpoints, size_prompt_cache
from shared.settings.model_options import ModelOptions
from shared.text_store import PromptCacheSize

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2)
RECURRENT = MemoryProbe(
    True, can_roll_back=True, n_window=0, full_token_bytes=10, window_token_bytes=0, state_bytes=1000
)
WINDOWS = MemoryTraits(n_rollback=64, checkpoint_bytes=1 << 20)


@pytest.mark.parametrize(
    ("options", "n"),
    [({}, 8), ({"ctx_checkpoints": 3}, 3), ({"checkpoint_memory": 10}, 5), ({"parallel": 64}, 8)],
)
def test_checkpoints_are_bounded_by_number_and_by_memory(options, n):
    assert n_prompt_checkpoints(WINDOWS, OPTIONS.model_copy(update=options)) == n


def test_no_checkpoints_are_needed_where_memory_can_be_trimmed():
    assert n_prompt_checkpoints(PLAIN, OPTIONS) == 0
    assert describe_checkpoints(PLAIN, OPTIONS) == ""


@pytest.mark.parametrize(
    ("cache_ram", "n_left", "n_bytes"),
    [(1, 1 << 40, 1 << 20), (-1, 4000, 1000), (8192, 4000, 1000), (0, 1 << 40, 0), (8192, -5000, 0)],
)
def test_stored_texts_are_bounded_by_an_option_and_a_quarter_of_the_free_memory(cache_ram, n_left, n_bytes):
    options = OPTIONS.model_copy(update={"cache_ram": cache_ram})
    context = ContextNeeds(64, 2, WINDOWS, kv_unified=True, n_window=0)
    assert size_prompt_cache(options, RECURRENT, n_left, context) == PromptCacheSize(n_bytes, 10, 1000)


@pytest.mark.parametrize(
    ("architecture", "options", "stores"),
    [
        ("llama", {}, True),
        ("gemma3", {}, True),
        ("gemma3", {"swa_full": True}, True),
        ("gemma3", {"swa_full": True, "kv_unified": False}, False),
        ("qwen35", {}, True),
    ],
)
def test_texts_are_stored_unless_cells_outside_of_windows_may_be_needed(
    tiny_model, architecture, options, stores
):
    plan = plan_memory(tiny_model(architecture), OPTIONS.model_copy(update=options))
    assert (plan.prompt_cache.n_bytes > 0) == stores


@pytest.mark.parametrize(("n_fitting", "n_part"), [(1000, 512), (512, 512), (511, 256), (100, 64)])
def test_no_part_is_longer_than_a_window_nor_crosses_its_multiples(n_fitting, n_part):
    """llama.cpp stores only the last window of a sequence."""
    n_bytes = texts_kept._PART_BYTES // n_fitting
    probe = replace(RECURRENT, n_window=512, full_token_bytes=n_bytes - 9, window_token_bytes=9)
    context = ContextNeeds(64, 2, PLAIN, kv_unified=True, n_window=512)
    size = size_prompt_cache(OPTIONS, probe, 1 << 30, context)
    assert (size.n_part, size.state_bytes) == (n_part, 0)
