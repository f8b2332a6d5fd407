import time

import llama_cpp
import numpy as np
import pytest

from shared.cache_edits import Snapshot
from shared.errors import KvCacheFullError, ModelLoadError
from shared.exact.batch_invariance import InvariantSizes
from shared.llama.batch_layout import one_pass
from shared.llama.memory_traits import SlotPart
from shared.llama.model import Model
from shared.llama.native_parameters import context_parameters
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_draft, builtin_target
from shared.settings.model_options import ModelOptions

TEXT = [30, 40, 50, 60, 70, 80]


def test_logits_come_for_the_last_tokens_of_each_span(model):
    first, second = model.decode([Span(0, 0, TEXT, 2), Span(1, 0, TEXT[:3], 0)])
    assert (first.shape, second.shape) == ((2, model.n_vocab), (0, model.n_vocab))


def test_a_decode_can_be_launched_and_awaited_apart(model):
    spans = [Span(0, 0, TEXT, 2), Span(1, 0, TEXT[:3], 1)]
    at_once = [rows.copy() for rows in model.decode(spans)]
    model.trim(0, 0)
    model.trim(1, 0)
    wait = model.launch(spans)
    for one, other in zip(at_once, wait(), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("is_offloaded", [True, False])
def test_only_a_device_computes_while_this_thread_goes_on(model, monkeypatch, is_offloaded):
    launched_in_1_s_and_awaited_for_7_s = iter([0.0, 1.0, 8.0])
    monkeypatch.setattr(model, "is_offloaded", is_offloaded)
    monkeypatch.setattr(time, "perf_counter", launched_in_1_s_and_awaited_for_7_s.__next__)
    model.decode([Span(0, 0, TEXT, 1)])
    assert model.overlaps == is_offloaded


class Recorder(SlotPart):
    """Records its calls."""

    token_bytes = 12

    def __init__(self):
        self.told = []

    def computed(self, together):
        self.told.append(("computed", [part.span.tokens for part in together]))

    def trimmed(self, slot, n_keep):
        self.told.append(("trimmed", slot, n_keep))


def test_what_is_attached_hears_of_each_pass_and_edit_and_its_bytes_are_counted(opened):
    model, recorder = opened(builtin_draft(), ModelOptions(ctx_size=512, threads=1)), Recorder()
    n_before = model.prompt_cache.token_bytes
    model.attach(recorder)
    model.decode([Span(0, 0, TEXT, 1)])
    model.trim(0, 2)
    assert recorder.told == [("computed", [TEXT]), ("trimmed", 0, 2)]
    assert model.prompt_cache.token_bytes == n_before + recorder.token_bytes


def test_drafts_of_quantized_weights_get_the_bits_of_single_tokens(model):
    single = []
    for i, token in enumerate(TEXT):
        single.append(model.decode([Span(0, i, [token], 1)])[0][0].copy())
    model.trim(0, 0)
    (rows,) = model.decode([Span(0, 0, TEXT, len(TEXT))])
    assert np.array_equal(rows, single)


def test_a_padded_token_leaves_one_token_in_the_cache(model):
    model.batch_sizes = InvariantSizes((2, 4), (4, 8))
    model.decode([Span(0, 0, TEXT[:4], 1)])
    plain = model.decode([Span(0, 4, TEXT[4:6], 2)])[0].copy()
    model.trim(0, 4)
    rows = [model.decode([Span(0, 4 + i, [TEXT[4 + i]], 1)])[0][0].copy() for i in range(2)]
    assert np.array_equal(rows, plain)


def test_a_pass_without_room_leaves_the_cache_as_it_was(model):
    model.batch_sizes = InvariantSizes((2, 4), (2, 4, 64))
    for start in range(0, 448, 64):
        model.decode([Span(0, start, [5] * 64, 0, is_prompt=True)])
    model.decode([Span(1, 0, TEXT, 1)])
    with pytest.raises(KvCacheFullError):
        model.decode([Span(1, 6, TEXT[:2], 2), Span(0, 448, [5] * 64, 1, is_prompt=True)])
    assert model.decode([Span(1, 6, TEXT[:2], 2)])[0].shape == (2, model.n_vocab)


def test_a_slot_with_cells_of_its_own_gets_a_copy_of_a_beginning(opened):
    options = ModelOptions(ctx_size=512, parallel=2, batch_size=64, threads=1, kv_unified=False)
    own_cells = opened(builtin_target(), options)
    own_cells.decode([Span(0, 0, TEXT, 0)])
    own_cells.copy(0, 1, 4)
    own_cells.trim(0, 0)
    own_cells.decode([Span(0, 0, TEXT[::-1], 0)])
    after_copy = own_cells.decode([Span(1, 4, [TEXT[4]], 1)])[0].copy()
    own_cells.trim(0, 0)
    own_cells.decode([Span(0, 0, TEXT[:4], 0)])
    assert np.array_equal(after_copy, own_cells.decode([Span(0, 4, [TEXT[4]], 1)])[0])


def test_a_prompt_that_cannot_be_taken_back_from_a_full_cache_is_named_and_gone(opened, tiny_model):
    """Recurrent states are cut back by only a few tokens. Drafts are decoded after prompts."""
    options = ModelOptions(ctx_size=256, parallel=2, threads=1, n_gpu_layers=0, kv_unified=True)
    hybrid = opened(tiny_model("qwen35"), options)
    prompt = [7] * 50
    alone = hybrid.decode([Span(1, 0, prompt, 1)])[0].copy()
    hybrid.trim(1, 0)
    hybrid.decode([Span(0, 0, [5] * 200, 0)])
    with pytest.raises(KvCacheFullError) as error:
        hybrid.decode([Span(0, 200, [5] * 8, 8), Span(1, 0, prompt, 1)])
    assert error.value.lost == [1]
    assert np.abs(hybrid.decode([Span(1, 0, prompt, 1)])[0] - alone).max() < 0.01


def test_what_is_loaded_after_a_copy_into_the_same_slot_stays(opened):
    """llama.cpp copies whole slots at the next decode."""
    options = ModelOptions(ctx_size=512, parallel=2, threads=1, n_gpu_layers=0, kv_unified=False)
    model = opened(builtin_draft(), options)
    alone = model.decode([Span(0, 0, TEXT, 1)])[0].copy()
    model.trim(0, 5)
    text = Snapshot("text", 1, 5)
    model.store(0, text)
    model.trim(0, 0)
    model.decode([Span(1, 0, [9] * 20, 0)])
    model.copy(1, 0, 10)
    model.trim(0, 0)
    model.restore(0, text, 5)
    assert np.abs(model.decode([Span(0, 5, TEXT[5:], 1)])[0] - alone).max() < 0.05


def test_a_copy_lives_on_without_the_original(model):
    model.decode([Span(0, 0, TEXT[:5], 0)])
    model.copy(0, 1, 4)
    right = model.decode([Span(0, 5, [TEXT[5]], 1)])[0].copy()
    model.trim(0, 0)
    model.decode([Span(1, 4, [TEXT[4]], 0)])
    assert np.array_equal(model.decode([Span(1, 5, [TEXT[5]], 1)])[0], right)


def test_a_copy_takes_no_room(model):
    for start in range(0, 448, 64):
        model.decode([Span(0, start, [5] * 64, 0)])
    model.copy(0, 1, 448)
    model.decode([Span(0, 448, [6] * 32, 1), Span(1, 448, [7] * 32, 1)])
    with pytest.raises(KvCacheFullError):
        model.decode([Span(1, 480, [8], 1)])


@pytest.mark.parametrize(("source", "slot"), [(0, 2), (2, 0), (-1, 0), (0, -1), (1, 1)])
def test_a_copy_between_wrong_slots_never_reaches_native_code(model, source, slot):
    with pytest.raises(ValueError, match="slot"):
        model.copy(source, slot, 1)


def test_a_copy_into_a_slot_in_use_is_a_bug(model):
    model.decode([Span(0, 0, TEXT, 0), Span(1, 0, TEXT, 0)])
    with pytest.raises(AssertionError, match="not empty"):
        model.copy(0, 1, 2)


def test_a_full_cache_is_said_and_changes_nothing(model):
    for start in range(0, 512, 64):
        model.decode([Span(0, start, [5] * 64, 0)])
    with pytest.raises(KvCacheFullError):
        model.decode([Span(1, 0, TEXT, 1)])
    model.trim(0, 6)
    assert model.decode([Span(1, 0, TEXT, 1)])[0].shape == (1, model.n_vocab)


@pytest.mark.parametrize(
    "spans",
    [
        *([], [Span(0, 0, [], 0)], [Span(2, 0, [1], 1)], [Span(-1, 0, [1], 1)], [Span(0, -1, [1], 1)]),
        *([Span(0, 0, [4096], 1)], [Span(0, 0, [-1], 1)], [Span(0, 0, [1] * 65, 1)]),
        [Span(0, 0, [1] * 40, 1), Span(1, 0, [1] * 40, 1)],
    ],
)
def test_a_wrong_batch_never_reaches_native_code(model, spans):
    with pytest.raises(ValueError, match="batch"):
        model.decode(spans)


def test_a_wrong_slot_never_reaches_native_code(model):
    with pytest.raises(ValueError, match="slot"):
        model.trim(2, 0)


def test_slots_that_share_a_text_need_no_room_of_their_own(opened):
    options = ModelOptions(parallel=3, batch_size=32, threads=1)
    assert opened(builtin_draft(), options, n_slots=12).n_ctx == 3 * 2048


@pytest.fixture(scope="module")
def streams():
    """A model whose slots have cells of their own."""
    options = ModelOptions(ctx_size=512, parallel=2, batch_size=64, threads=1, kv_unified=False)
    model = Model(plan_memory(builtin_target(), options))
    yield model
    model.close()


def test_slots_with_cells_of_their_own_share_the_context_equally(streams, loaded):
    assert (streams.n_ctx, streams.n_ctx_slot) == (512, 256)
    assert (loaded.n_ctx, loaded.n_ctx_slot) == (512, 512)


def test_spans_of_different_lengths_get_the_logits_they_get_alone(streams):
    alone = []
    for span in (Span(0, 0, TEXT, 2), Span(1, 0, TEXT[:3], 3)):
        alone.append(streams.decode([span])[0].copy())
        streams.trim(span.slot, 0)
    for order in (1, -1):
        together = streams.decode([Span(0, 0, TEXT, 2), Span(1, 0, TEXT[:3], 3)][::order])[::order]
        assert np.array_equal(together[0], alone[0])
        assert np.array_equal(together[1], alone[1])
        streams.trim(0, 0)
        streams.trim(1, 0)


def test_what_fills_up_a_shorter_span_leaves_no_trace(streams):
    streams.decode([Span(0, 0, TEXT, len(TEXT)), Span(1, 0, TEXT[:3], 3)])
    (after,) = streams.decode([Span(1, 3, TEXT[3:5], 2)])
    after = after.copy()
    streams.trim(1, 0)
    (clean,) = streams.decode([Span(1, 0, TEXT[:5], 2)])
    assert np.array_equal(after, clean)


@pytest.fixture
def load(opened):
    def load(**compute):
        options = ModelOptions(ctx_size=64, parallel=2, batch_size=64, threads=1, **compute)
        return opened(builtin_target(), options)

    return load


@pytest.mark.parametrize("kind", ["f32", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])
def test_a_cache_of_another_type_gives_nearly_the_same(load, model, kind):
    plain = model.decode([Span(0, 0, TEXT, 1)])[0][0].copy()
    other = load(cache_type_k=kind, cache_type_v=kind).decode([Span(0, 0, TEXT, 1)])[0][0]
    difference = np.abs(plain - other).max()
    assert difference < 0.2 * np.ptp(plain)
    assert kind == "f32" or difference > 0


def flash_attention_of(**settings):
    options = ModelOptions(threads=1, n_gpu_layers=0, **settings)
    parameters = context_parameters(options, 512, options.parallel)
    return parameters.flash_attn_type != llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        ({"parallel": 4}, False),
        ({"parallel": 8}, True),
        ({"parallel": 8, "kv_unified": False}, True),
        ({"parallel": 8, "flash_attn": "off"}, False),
        ({"parallel": 1, "flash_attn": "on"}, True),
        ({"parallel": 8, "cache_type_k": "q8_0"}, False),
    ],
)
def test_many_slots_have_flash_attention_on_cpus_unless_told_otherwise(settings, is_on):
    assert flash_attention_of(**settings) is is_on


def test_slots_for_branches_of_a_text_do_not_count_for_flash_attention():
    options = ModelOptions(parallel=8, n_gpu_layers=0)
    parameters = context_parameters(options, 512, 32)
    assert parameters.flash_attn_type == llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED


def test_smaller_batches_inside_a_step_are_possible(load, model):
    plain = model.decode([Span(0, 0, TEXT, 2)])[0].copy()
    assert np.abs(plain - load(ubatch_size=2).decode([Span(0, 0, TEXT, 2)])[0]).max() < 0.05


def test_an_embedding_model_is_refused(opened, tiny_model):
    with pytest.raises(ModelLoadError, match="it is an encoder, which turns text into vectors"):
        opened(tiny_model("gemma-embedding"), ModelOptions(ctx_size=64, parallel=1, threads=1))


def test_padding_takes_no_position_that_a_model_has_not_learned(opened, tiny_model):
    options = ModelOptions(ctx_size=2048, parallel=2, threads=1, kv_unified=False)
    model = opened(tiny_model("gpt2"), options)
    assert model.n_ctx_slot == 512
    for slot, length in ((0, 510), (1, 20)):
        model.decode([Span(slot, 0, [1] * length, 0)])
    rows = model.decode([Span(0, 510, [1], 1), Span(1, 20, [1, 2, 3, 4, 5], 5)])
    assert [len(each) for each in rows] == [1, 5]


@pytest.fixture
def many_slots(opened):
    """A model with five slots, which has flash attention. Two texts are long enough to read prompts apart."""
    options = ModelOptions(ctx_size=2048, parallel=5, batch_size=128, threads=1)
    model = opened(builtin_target(), options)
    assert model.tiles_attention
    for slot in range(2):
        fill(model, slot, 640)
    return model


def fill(model, slot, n_tokens):
    for start in range(0, n_tokens, 128):
        model.decode([Span(slot, start, [7 + slot] * min(128, n_tokens - start), 0)])


def test_a_prompt_that_is_read_apart_changes_no_logits(many_slots):
    spans = [Span(0, 640, [5, 6], 2), Span(2, 0, [9] * 64, 1), Span(1, 640, [5], 1)]
    apart = [rows.copy() for rows in many_slots.decode(spans)]
    for slot, length in ((0, 640), (1, 640), (2, 0)):
        many_slots.trim(slot, length)
    together = many_slots.decode(one_pass(spans))
    for one, other in zip(apart, together, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() < 0.05 * np.ptp(other)  # other kernels


def test_a_prompt_that_was_read_apart_is_taken_back_if_the_rest_has_no_room(many_slots):
    fill(many_slots, 2, 2048 - 2 * 640 - 65)
    prompt = Span(3, 0, [9] * 64, 1)
    with pytest.raises(KvCacheFullError):
        many_slots.decode([Span(0, 640, [5, 6], 2), Span(1, 640, [5], 1), prompt])
    many_slots.trim(2, 0)
    assert [len(rows) for rows in many_slots.decode([Span(0, 640, [5, 6], 2), prompt])] == [2, 1]


def test_a_step_without_logits_is_waited_for_too(model, monkeypatch):
    waited = []
    monkeypatch.setattr(llama_cpp, "llama_synchronize", waited.append)
    model.clear()
    model.decode([Span(0, 0, TEXT, 0)])
    assert waited
    model.clear()


def test_without_layers_on_a_gpu_nothing_else_is_computed_there():
    assert not context_parameters(ModelOptions(n_gpu_layers=0), 512, 1).op_offload
    assert context_parameters(ModelOptions(n_gpu_layers=1), 512, 1).op_offload


@pytest.mark.parametrize(
    ("ctx_size", "said"), [(4096, "a context of 4096 tokens"), (0, "the model's context")]
)
def test_a_context_without_memory_for_it_is_told_as_it_was_asked_for(monkeypatch, ctx_size, said):
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", lambda *_: None)
    with pytest.raises(ModelLoadError, match=f"not enough memory for {said}. Lower --ctx-size"):
        Model(plan_memory(builtin_draft(), ModelOptions(ctx_size=ctx_size, n_gpu_layers=0), n_slots=1))
