"""Images of random embeddings, in models of both kinds: a slot that holds them computes as after a read."""

import os

import numpy as np
import pytest

from shared.cache_edits import Snapshot
from shared.errors import KvCacheFullError
from shared.image_span import ImageMemory, ImageSpan, row_identities
from shared.llama.image_batch import _ImageBatch
from shared.llama.model import Model
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions

BOUND = 0.01
N_ROWS, N_EMBD = 40, 64
BEFORE, AFTER, OTHER = [30, 40, 50, 60, 70], [80, 90, 100, 110], [7, 8, 9, 10, 11, 12]
KINDS = {
    "gemma3": {"n_rows": N_ROWS, "n_positions": N_ROWS, "whole": True},
    "qwen2vl": {"n_rows": N_ROWS, "n_positions": 8, "width": 8},
}
of_each_kind = pytest.mark.parametrize("kind", KINDS)
END = len(BEFORE) + N_ROWS


@pytest.fixture(scope="module")
def images():
    """The memory of two images."""
    rows = np.random.default_rng(1).normal(size=(2, N_ROWS * N_EMBD)).astype(np.float32)
    descriptor = os.memfd_create("images")
    os.write(descriptor, rows.tobytes())
    yield ImageMemory(descriptor=descriptor, n_bytes=rows.nbytes)
    os.close(descriptor)


@pytest.fixture(scope="module")
def load(tiny_model, images):
    loaded = {}

    def find(kind, **options):
        key = kind, *options.items()
        if key not in loaded:
            given = {"threads": 1, "ctx_size": 512, "parallel": 3, "flash_attn": "off", "ubatch_size": 64}
            plan = plan_memory(tiny_model(kind), ModelOptions(**given | options))
            loaded[key] = Model(plan, images)
        for slot in range(3):
            loaded[key].trim(slot, 0)
        return loaded[key]

    yield find
    for each in loaded.values():
        each.close()


def image(kind, number=0):
    offset = 4 * number * N_ROWS * N_EMBD
    return ImageSpan(start=len(BEFORE), key=f"image {number}", offset=offset, **KINDS[kind])


def read(model, slot, start, tokens, n_logits=1):
    (rows,) = model.decode([Span(slot, start, list(tokens), n_logits)])
    return rows.copy()


def look(model, slot, span):
    """Read an image."""
    model.decode([Span(slot, span.start, list(row_identities(span.key, N_ROWS)), 0, image=span)])


def read_all(model, kind, slot, number=0):
    span = image(kind, number)
    read(model, slot, 0, BEFORE, 0)
    look(model, slot, span)
    return read(model, slot, span.end, AFTER, len(AFTER))


def differs(one, other):
    return float(np.abs(one - other).max()) > BOUND


@of_each_kind
def test_an_image_decides_what_follows(load, kind):
    model = load(kind)
    with_image = read_all(model, kind, 0)
    assert differs(with_image, read(model, 1, 0, [*BEFORE, *AFTER], len(AFTER)))
    assert not differs(with_image, read_all(model, kind, 2))
    model.trim(1, 0)
    assert differs(with_image, read_all(model, kind, 1, number=1))


@of_each_kind
def test_a_draft_after_an_image_is_taken_back(load, kind):
    model = load(kind)
    expected = read_all(model, kind, 0)
    model.trim(0, END + 1)
    read(model, 0, END + 1, OTHER, len(OTHER))
    model.trim(0, END + 1)
    assert not differs(read(model, 0, END + 1, AFTER[1:], 3), expected[1:])


@of_each_kind
@pytest.mark.parametrize("options", [{}, {"kv_unified": False, "swa_full": True}])
def test_a_copy_goes_on_after_an_image(load, kind, options):
    model = load(kind, **options)
    expected = read_all(model, kind, 0)
    model.copy(0, 1, END)
    model.trim(0, 0)
    assert not differs(read(model, 1, END, AFTER, len(AFTER)), expected)


@of_each_kind
def test_a_text_that_was_stored_goes_on_after_its_image(load, kind):
    model = load(kind)
    read_all(model, kind, 0)
    text = Snapshot("text", 7, END + len(AFTER))
    model.store(0, text)
    expected = read(model, 0, text.end, OTHER, 3)
    model.trim(0, 0)
    read(model, 0, 0, OTHER)
    model.restore(1, text, text.end)
    model.forget(7)
    assert not differs(read(model, 1, text.end, OTHER, 3), expected)


def test_of_a_text_that_was_stored_only_what_is_before_its_image_is_taken(load):
    model = load("qwen2vl")
    expected = read_all(model, "qwen2vl", 0)
    text = Snapshot("text", 7, END + len(AFTER))
    model.store(0, text)
    model.restore(1, text, len(BEFORE))
    model.forget(7)
    look(model, 1, image("qwen2vl"))
    assert not differs(read(model, 1, END, AFTER, 4), expected)


def test_parts_of_a_text_that_divide_an_image_go_together(load):
    model = load("qwen2vl")
    expected = read_all(model, "qwen2vl", 0)
    parts = [Snapshot("text", 1, 12), Snapshot("text", 2, 20, 12), Snapshot("text", 3, END + 4, 20)]
    for part in parts:
        model.store(0, part)
    model.trim(0, 0)
    for part in parts:
        model.restore(1, part, min(part.end, END + 1))
        model.forget(part.key)
    assert not differs(read(model, 1, END + 1, AFTER[1:], 3), expected[1:])


@of_each_kind
def test_an_image_beside_others_changes_nothing_of_theirs(load, kind):
    model = load(kind)
    expected = read_all(model, kind, 0)
    alone = read(model, 1, 0, OTHER, 6)
    model.trim(0, len(BEFORE))
    model.trim(1, 3)
    span = image(kind)
    rows = list(row_identities(span.key, N_ROWS))
    none, beside = model.decode([Span(0, span.start, rows, 0, image=span), Span(1, 3, OTHER[3:], 3)])
    assert none.shape == (0, model.n_vocab)
    assert not differs(beside, alone[3:])
    assert not differs(read(model, 0, END, AFTER, 4), expected)


def test_an_image_longer_than_a_batch_is_read_in_several_passes(load):
    expected = read_all(load("qwen2vl"), "qwen2vl", 0)
    model = load("qwen2vl", batch_size=32)
    assert not differs(read_all(model, "qwen2vl", 0), expected)


def test_without_room_for_the_end_of_an_image_nothing_of_it_stays(load):
    model = load("qwen2vl", batch_size=32)
    expected = read_all(model, "qwen2vl", 0)
    model.trim(0, len(BEFORE))
    n_full = 512 - len(BEFORE) - 35
    for at in range(0, n_full, 32):
        read(model, 1, at, [1] * min(32, n_full - at))
    span = image("qwen2vl")
    with pytest.raises(KvCacheFullError):
        look(model, 0, span)
    model.trim(1, 0)
    look(model, 0, span)
    assert not differs(read(model, 0, END, AFTER, 4), expected)


def test_positions_of_rows_under_m_rope_are_those_of_a_grid():
    span = ImageSpan(start=5, n_rows=6, n_positions=3, key="a", width=3)
    batch = _ImageBatch(np.zeros((6, 1), np.float32), 6, 4)
    batch.filled(0, 10, 0, span)
    t, y, x, z = np.split(batch._position, 4)
    assert t.tolist() == [10] * 6
    assert y.tolist() == [10, 10, 10, 11, 11, 11]
    assert x.tolist() == [10, 11, 12, 10, 11, 12]
    assert z.tolist() == [0] * 6


def test_what_follows_an_image_is_read_at_other_positions_than_rows(load, monkeypatch):
    model = load("qwen2vl")
    expected = read_all(model, "qwen2vl", 0)
    monkeypatch.setitem(KINDS, "qwen2vl", KINDS["qwen2vl"] | {"n_positions": N_ROWS})
    assert differs(read_all(model, "qwen2vl", 1), expected)
