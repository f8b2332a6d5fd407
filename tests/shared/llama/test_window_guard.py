"""Models with sliding windows: the cells behind a window stay as long as they may be needed again."""

import numpy as np
import pytest

from bench.tiny_models import WINDOW, TinyModel, write_tiny_model
from shared.errors import ModelLoadError
from shared.llama.invariance_probe import estimate_widths
from shared.llama.model import Model
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions

LONG = [(7 * i) % 4000 for i in range(4 * WINDOW)]
OTHER = [(11 * i) % 4000 for i in range(6 * WINDOW)]


def load(path, n_slots=2, n_ctx=512, **options):
    given = {"ctx_size": n_ctx, "parallel": n_slots, "batch_size": 512, "threads": 1, "swa_full": True}
    return Model(path, ModelOptions(**given | options))


def read(model, slot, tokens, start=0):
    """The logits after `tokens`, decoded in parts as large as the model takes."""
    for at in range(0, len(tokens), model.n_batch):
        part = tokens[at : at + model.n_batch]
        rows = model.decode([Span(slot, start + at, part, 1)])[0]
    return rows[0].copy()


def grow(model, slot, tokens, start):
    """Decode one token at a time, as an answer does."""
    for i, token in enumerate(tokens):
        model.decode([Span(slot, start + i, [token], 1)])


@pytest.fixture
def gemma(tiny_model):
    model = load(tiny_model("gemma3"))
    yield model
    model.close()


def test_a_text_cut_back_is_whole_after_another_slot_was_busy(gemma):
    expected = read(gemma, 0, LONG)
    grow(gemma, 0, OTHER[: 3 * WINDOW], len(LONG))
    gemma.trim(0, len(LONG) - 1)
    read(gemma, 1, OTHER)
    assert np.abs(read(gemma, 0, LONG[-1:], len(LONG) - 1) - expected).max() < 0.01


def test_the_second_turn_of_a_long_chat_is_read_from_a_whole_cache(tiny_model):
    model, fresh = load(tiny_model("gpt-oss"), n_slots=4, n_ctx=2048), load(tiny_model("gpt-oss"))
    history = [(13 * i) % 4000 for i in range(500)]
    read(model, 0, history)
    grow(model, 0, OTHER[:40], len(history))
    for slot in (1, 2, 3):
        read(model, slot, OTHER)
    model.trim(0, len(history) - 20)  # the template drops the end of the first turn
    second_turn = read(model, 0, LONG[:12], len(history) - 20)
    expected = read(fresh, 0, [*history[:-20], *LONG[:12]])
    assert np.abs(second_turn - expected).max() < 0.01


def test_a_copy_is_whole_after_its_source_was_given_up(gemma):
    expected = read(gemma, 0, LONG)
    gemma.copy(0, 1, len(LONG))
    grow(gemma, 1, OTHER[: 3 * WINDOW], len(LONG))
    gemma.trim(0, 0)
    read(gemma, 0, OTHER[: 4 * WINDOW])
    gemma.trim(1, len(LONG) - 1)
    assert np.abs(read(gemma, 1, LONG[-1:], len(LONG) - 1) - expected).max() < 0.01


def test_cells_are_free_again_when_a_slot_is_given_up(gemma):
    for _ in range(3):
        for slot in range(2):
            read(gemma, slot, LONG)
        for slot in range(2):
            gemma.trim(slot, 0)
    assert read(gemma, 0, [*LONG, *OTHER, *OTHER]).any()  # the whole pool


def test_a_batch_is_one_ubatch(tiny_model):
    assert load(tiny_model("gemma3"), ubatch_size=64).n_batch == 64
    assert load(tiny_model("llama"), ubatch_size=64).n_batch == 512


@pytest.mark.parametrize("n_slots", [2, 20])
def test_a_smaller_ubatch_than_the_sequences_need_is_raised(tiny_model, n_slots):
    model = load(tiny_model("gemma3"), n_slots=n_slots, ubatch_size=1)
    assert estimate_widths(model, 20.0)
    assert model.n_batch >= max(2 * n_slots, 32)
    model.close()


def test_more_slots_than_can_be_guarded_are_refused(tiny_model):
    with pytest.raises(ModelLoadError, match="at most 128 slots"):
        load(tiny_model("gemma3"), n_slots=129, n_ctx=4096)


def test_chunked_windows_are_whole_behind_a_boundary(tmp_path):
    """Llama 4: a token sees what is in its own chunk of 8,192."""
    chunk = 8192
    path = write_tiny_model(
        TinyModel("llama4", width=32, settings={"context_length": 2 * chunk}), tmp_path / "llama4.gguf"
    )
    model = load(path, n_ctx=chunk + 600)
    text = [(7 * i) % 4000 for i in range(chunk - 2)]
    expected = read(model, 0, text)
    grow(model, 0, OTHER[:6], len(text))
    model.trim(0, len(text) - 1)
    read(model, 1, OTHER)
    assert np.abs(read(model, 0, text[-1:], len(text) - 1) - expected).max() < 0.01
