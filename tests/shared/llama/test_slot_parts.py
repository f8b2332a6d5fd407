"""The data of slots besides their cells: windows and recurrent states are right, or reported as lost."""

import numpy as np
import pytest

from shared.cache_edits import Snapshot
from shared.errors import ModelLoadError, WindowLostError
from shared.exact.invariance_probe import estimate_sizes
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions
from tests.shared.llama.conftest import read
from tests.tiny_models import WINDOW, TinyModel, write_tiny_model

TEXT = [(7 * i) % 4000 for i in range(6 * WINDOW)]
LONG = TEXT[: 4 * WINDOW]
OTHER = [(11 * i) % 4000 for i in range(6 * WINDOW)]
STATE, KEPT = Snapshot("state", 7, 2 * WINDOW), Snapshot("device", 0, 50)


# WindowGuard: the cells behind a window stay as long as they may be needed again


@pytest.fixture
def load(opened, tiny_model):
    """Opens a tiny model of an architecture, or a file."""

    def load(model, n_slots=2, n_ctx=512, **options):
        given = {"ctx_size": n_ctx, "parallel": n_slots, "batch_size": 512, "threads": 1, "swa_full": True}
        path = tiny_model(model) if isinstance(model, str) else model
        return opened(path, ModelOptions(**given | options))

    return load


def grow(model, slot, tokens, start):
    """Decode one token at a time, as an answer does."""
    for i, token in enumerate(tokens):
        model.decode([Span(slot, start + i, [token], 1)])


@pytest.fixture
def gemma(load):
    return load("gemma3")


def test_the_second_turn_of_a_long_chat_is_read_from_a_whole_cache(load):
    model, fresh = load("gpt-oss", n_slots=4, n_ctx=2048), load("gpt-oss")
    history = [(13 * i) % 4000 for i in range(500)]
    read(model, 0, 0, history)
    grow(model, 0, OTHER[:40], len(history))
    for slot in (1, 2, 3):
        read(model, slot, 0, OTHER)
    model.trim(0, len(history) - 20)  # the template drops the end of the first turn
    second_turn = read(model, 0, len(history) - 20, LONG[:12])
    expected = read(fresh, 0, 0, [*history[:-20], *LONG[:12]])
    assert np.abs(second_turn - expected).max() < 0.01


def test_a_copy_is_whole_after_its_source_was_given_up(gemma):
    expected = read(gemma, 0, 0, LONG)
    gemma.copy(0, 1, len(LONG))
    grow(gemma, 1, OTHER[: 3 * WINDOW], len(LONG))
    gemma.trim(0, 0)
    read(gemma, 0, 0, OTHER[: 4 * WINDOW])
    gemma.trim(1, len(LONG) - 1)
    assert np.abs(read(gemma, 1, len(LONG) - 1, LONG[-1:]) - expected).max() < 0.01


def test_cells_are_free_again_when_a_slot_is_given_up(gemma):
    for _ in range(3):
        for slot in range(2):
            read(gemma, slot, 0, LONG)
        for slot in range(2):
            gemma.trim(slot, 0)
    assert read(gemma, 0, 0, [*LONG, *OTHER, *OTHER]).any()  # the whole pool


def test_a_batch_is_one_ubatch(load):
    assert load("gemma3", ubatch_size=64).n_batch == 64
    assert load("llama", ubatch_size=64).n_batch == 512


@pytest.mark.parametrize("n_slots", [2, 20])
def test_a_smaller_ubatch_than_the_sequences_need_is_raised(load, n_slots):
    model = load("gemma3", n_slots=n_slots, ubatch_size=1)
    assert estimate_sizes(model, 20.0)
    assert model.n_batch >= max(2 * n_slots, 32)


def test_more_slots_than_can_be_guarded_are_refused(load):
    with pytest.raises(ModelLoadError, match="at most 128 slots"):
        load("gemma3", n_slots=129, n_ctx=4096)


def test_chunked_windows_are_whole_behind_a_boundary(load, tmp_path):
    """Llama 4: a token sees only tokens in its own chunk of 8,192."""
    chunk = 8192
    path = write_tiny_model(
        TinyModel("llama4", width=32, settings={"context_length": 2 * chunk}), tmp_path / "llama4.gguf"
    )
    model = load(path, n_ctx=chunk + 600)
    text = [(7 * i) % 4000 for i in range(chunk - 2)]
    expected = read(model, 0, 0, text)
    grow(model, 0, OTHER[:6], len(text))
    model.trim(0, len(text) - 1)
    read(model, 1, 0, OTHER)
    assert np.abs(read(model, 0, len(text) - 1, text[-1:]) - expected).max() < 0.01


# WindowCheck: a window that was overwritten is noticed before anything is computed from it


@pytest.fixture(params=["gemma3", "gpt-oss"])
def windows(request, opened, tiny_model):
    options = ModelOptions(threads=1, ctx_size=1024, parallel=2, batch_size=32, ubatch_size=32)
    return opened(tiny_model(request.param), options)


def overwrite(model):
    """Go back to the middle of a text, further than the last decode, while another slot is busy."""
    expected = read(model, 0, 0, TEXT[: 2 * WINDOW])
    read(model, 0, 2 * WINDOW, TEXT[2 * WINDOW :])
    read(model, 1, 0, OTHER)
    model.trim(0, 2 * WINDOW - 1)
    return expected


def test_a_text_that_was_cut_back_too_far_is_not_decoded(windows):
    overwrite(windows)
    with pytest.raises(WindowLostError, match=r"slots \[0\] were overwritten") as raised:
        windows.decode([Span(1, len(OTHER), [1], 1), Span(0, 2 * WINDOW - 1, [1], 1)])
    assert raised.value.slots == [0]


def test_the_other_slots_go_on(windows):
    overwrite(windows)
    assert len(windows.decode([Span(1, len(OTHER), [1], 1)])) == 1


def test_once_it_is_read_again_it_is_right(windows):
    expected = overwrite(windows)
    windows.trim(0, 0)
    assert np.abs(read(windows, 0, 0, TEXT[: 2 * WINDOW]) - expected).max() < 0.01


def test_a_draft_of_the_last_decode_is_taken_back_without_a_complaint(windows):
    read(windows, 0, 0, TEXT)
    expected = read(windows, 0, len(TEXT), OTHER[:3])
    windows.trim(0, len(TEXT))
    assert np.abs(read(windows, 0, len(TEXT), OTHER[:3]) - expected).max() < 0.01


def test_a_stored_window_makes_it_whole_again(windows):
    read(windows, 0, 0, TEXT[: 2 * WINDOW])
    windows.store(0, STATE)
    expected = read(windows, 0, 2 * WINDOW, OTHER[:1])
    read(windows, 0, 2 * WINDOW + 1, TEXT[2 * WINDOW :])
    read(windows, 1, 0, OTHER)
    windows.restore(0, STATE, STATE.end)
    assert np.abs(read(windows, 0, 2 * WINDOW, OTHER[:1]) - expected).max() < 0.01


def test_a_copy_of_a_beginning_is_no_use_without_its_window(windows):
    read(windows, 0, 0, TEXT)
    read(windows, 1, 0, OTHER)
    windows.trim(1, 0)
    windows.copy(0, 1, WINDOW)
    with pytest.raises(WindowLostError):
        windows.decode([Span(1, WINDOW, [1], 1)])


# StepCheckpoints: a recurrent state is saved and restored without a difference, while other slots are busy

recurrent = pytest.mark.parametrize("three_slots", ["jamba", "mamba2", "qwen3next"], indirect=True)


@recurrent
@pytest.mark.parametrize("slot", [0, 1], ids=["it", "another"])
def test_a_slot_goes_on_from_the_state_that_was_saved_last(three_slots, slot):
    read(three_slots, 0, 0, TEXT[:20])
    three_slots.store(0, Snapshot("device", 0, 20))
    read(three_slots, 0, 20, TEXT[20:50])
    three_slots.store(0, KEPT)
    expected = read(three_slots, 0, 50, TEXT[50:60])
    three_slots.restore(slot, KEPT, KEPT.end)
    assert np.abs(read(three_slots, slot, 50, TEXT[50:60]) - expected).max() < 1e-4


@recurrent
def test_a_slot_that_was_emptied_has_no_saved_state(three_slots):
    read(three_slots, 0, 0, TEXT[:60])
    three_slots.store(0, KEPT)
    three_slots.trim(0, 0)
    with pytest.raises(AssertionError, match="no state"):
        three_slots.restore(0, KEPT, KEPT.end)
