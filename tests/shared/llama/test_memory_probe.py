"""What memories can do, and how large they are, against tiny models of each kind."""

import pytest

from bench.tiny_models import WINDOW
from shared.llama.memory_probe import MemoryProbe, choose_traits, memory_size
from shared.llama.memory_traits import PLAIN
from shared.llama.model import Model
from shared.llama.native_parameters import add_state_memory, context_parameters
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2)
RECURRENT = MemoryProbe(
    True, can_roll_back=True, n_window=0, full_token_bytes=10, window_token_bytes=0, state_bytes=1000
)


def traits_of(path, **options):
    model = Model(path, OPTIONS.model_copy(update=options))
    traits = model.traits
    model.close()
    return traits


@pytest.mark.parametrize(
    ("architecture", "n_rollback", "n_step_checkpoints"),
    [
        ("llama", None, False),
        ("qwen35", 8, False),
        ("lfm2", 8, False),
        ("jamba", 0, True),
        ("mamba2", 0, True),
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


def test_checkpoints_need_one_pool(tiny_model):
    assert not traits_of(tiny_model("jamba"), kv_unified=False).can_speculate


@pytest.mark.parametrize(("free_bytes", "n_rollback"), [(64_000, 8), (63_999, 6), (8_000, 1), (7_999, 0)])
def test_rollback_takes_at_most_a_quarter_of_the_free_memory(free_bytes, n_rollback):
    traits = choose_traits(RECURRENT, OPTIONS, n_slots=2, free_bytes=free_bytes)
    assert traits.n_rollback == n_rollback
    assert traits.n_step_checkpoints == (n_rollback == 0)


def test_the_size_counts_cells_windows_and_states():
    probe = MemoryProbe(True, True, WINDOW, full_token_bytes=10, window_token_bytes=3, state_bytes=1000)
    traits = choose_traits(probe, OPTIONS, n_slots=2, free_bytes=1 << 30)
    parameters = context_parameters(OPTIONS, 1000, 2)
    add_state_memory(parameters, traits)
    size = memory_size(probe, traits, parameters)
    n_window_cells = 768  # 2 windows and an ubatch of 512, padded
    assert (size.full_attention, size.windows) == (1024 * 10, n_window_cells * 3)
    assert (size.states, size.n_states) == (18_000, 18)
    assert str(size).endswith("0.0 MB for 18 recurrent states of 0.00 MB")


def test_with_all_tokens_a_window_is_as_large_as_the_rest():
    probe = MemoryProbe(False, False, WINDOW, full_token_bytes=10, window_token_bytes=3, state_bytes=0)
    options = OPTIONS.model_copy(update={"swa_full": True})
    size = memory_size(probe, PLAIN, context_parameters(options, 1024, 2))
    assert (size.full_attention, size.windows, size.states) == (10_240, 3072, 0)


@pytest.mark.parametrize(
    ("wanted", "n_slots", "free_bytes", "n"),
    [(18, 4, 1 << 30, 18), (18, 16, 1 << 30, 15), (18, 4, 160_000, 10), (18, 4, 0, 1)],
)
def test_a_drafter_keeps_as_many_states_as_sequences_and_memory_allow(wanted, n_slots, free_bytes, n):
    traits = choose_traits(RECURRENT, OPTIONS, n_slots, free_bytes, wanted)
    assert (traits.n_rollback, traits.n_step_checkpoints) == (0, n)
