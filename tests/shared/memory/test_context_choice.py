"""The kinds of memory that models have, and the facts about each, with tiny models."""

import pytest

from shared.errors import ModelLoadError
from shared.llama.memory_traits import PLAIN
from shared.memory.context_choice import choose_traits
from shared.memory.model_outline import MemoryProbe
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2)
RECURRENT = MemoryProbe(
    True, can_roll_back=True, n_window=0, full_token_bytes=10, window_token_bytes=0, state_bytes=1000
)


def test_a_model_that_llama_cpp_reads_wrongly_in_several_slots_is_refused(tiny_model):
    with pytest.raises(ModelLoadError, match="plamo2 models"):
        plan_memory(tiny_model("plamo2"), OPTIONS)
    plan_memory(tiny_model("plamo2"), OPTIONS, n_slots=1)


def traits_of(path, **options):
    return plan_memory(path, OPTIONS.model_copy(update=options)).context.traits


@pytest.mark.parametrize(
    ("architecture", "n_rollback", "n_step_checkpoints"),
    [
        *(("llama", None, False), ("qwen35", 8, False), ("lfm2", 8, False)),
        *(("jamba", 0, True), ("mamba2", 0, True)),
    ],
)
def test_each_kind_of_memory_is_told_apart(tiny_model, architecture, n_rollback, n_step_checkpoints):
    traits = traits_of(tiny_model(architecture))
    assert (traits.n_rollback, traits.n_step_checkpoints) == (n_rollback, n_step_checkpoints)
    assert traits.can_speculate


def test_a_sliding_window_is_cut_back_within_the_last_decode(tiny_model):
    assert traits_of(tiny_model("gemma3")).n_rollback > 32


def test_with_all_tokens_a_sliding_window_is_like_plain_attention(tiny_model):
    assert traits_of(tiny_model("gemma3"), swa_full=True) == PLAIN


def test_recurrent_states_beside_windows_have_cells_of_their_own(tiny_model):
    assert not plan_memory(tiny_model("lfm2"), OPTIONS).context.kv_unified
    assert plan_memory(tiny_model("qwen35"), OPTIONS).context.kv_unified


def test_checkpoints_need_one_pool(tiny_model):
    assert not traits_of(tiny_model("jamba"), kv_unified=False).can_speculate


@pytest.mark.parametrize(("free_bytes", "n_rollback"), [(64_000, 8), (63_999, 6), (8_000, 1), (7_999, 0)])
def test_rollback_takes_at_most_a_quarter_of_the_free_memory(free_bytes, n_rollback):
    traits = choose_traits(RECURRENT, OPTIONS, n_slots=2, free_bytes=free_bytes)
    assert traits.n_rollback == n_rollback
    assert traits.n_step_checkpoints == (n_rollback == 0)


@pytest.mark.parametrize(
    ("wanted", "n_slots", "free_bytes", "n"),
    [(18, 4, 1 << 30, 18), (18, 16, 1 << 30, 15), (18, 4, 160_000, 10), (18, 4, 0, 1)],
)
def test_a_drafter_keeps_as_many_states_as_sequences_and_memory_allow(wanted, n_slots, free_bytes, n):
    traits = choose_traits(RECURRENT, OPTIONS, n_slots, free_bytes, wanted)
    assert (traits.n_rollback, traits.n_step_checkpoints) == (0, n)
