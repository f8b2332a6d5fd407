"""Flash attention is chosen by measurement, once for a model, its slots and threads."""

import gguf
import pytest

from lead.attention import attention_probe
from lead.attention.attention_probe import AttentionShape, AttentionTimes, choose_flash_attention, measure
from shared.model_files.builtin import builtin_draft
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(threads=1, parallel=4, n_gpu_layers=0)
SHAPE = AttentionShape(n_heads=4, n_kv_heads=2, key_length=32, value_length=32, n_window=0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("shared.llama.remembered.user_cache_path", lambda _: tmp_path)
    monkeypatch.setattr(attention_probe, "_MAX_SECONDS", 600.0)


@pytest.fixture
def found(monkeypatch):
    """A function that sets the measured times, and returns the calls of the measurement."""
    calls = []

    def give(without, with_flash):
        def measured(*arguments):
            calls.append(arguments)
            return AttentionTimes(without_flash=without, with_flash=with_flash)

        monkeypatch.setattr(attention_probe, "measure", measured)
        return calls

    return give


@pytest.mark.parametrize(
    ("without", "with_flash", "chosen"), [(2.0, 1.0, "on"), (1.0, 2.0, "off"), (1.0, 1.02, "on")]
)
def test_the_shorter_time_decides_and_a_tie_is_on(found, without, with_flash, chosen):
    found(without, with_flash)
    assert choose_flash_attention(builtin_draft(), OPTIONS, 2).flash_attn == chosen


def test_the_next_start_chooses_the_same_without_measuring(found):
    calls = found(1.0, 2.0)
    choose_flash_attention(builtin_draft(), OPTIONS, 2)
    found(2.0, 1.0)
    assert choose_flash_attention(builtin_draft(), OPTIONS, 2).flash_attn == "off"
    assert len(calls) == 1


def test_another_number_of_threads_is_measured_anew(found):
    calls = found(1.0, 2.0)
    choose_flash_attention(builtin_draft(), OPTIONS, 2)
    choose_flash_attention(builtin_draft(), OPTIONS, 3)
    assert [options.threads for _, options, _ in calls] == [2, 3]


@pytest.mark.parametrize(("unified", "n_others"), [(True, 3), (False, 0)])
def test_other_texts_count_where_they_are_in_one_pool(found, unified, n_others):
    calls = found(1.0, 2.0)
    choose_flash_attention(builtin_draft(), OPTIONS.model_copy(update={"kv_unified": unified}), 2)
    assert calls[0][2] == n_others


@pytest.mark.parametrize(
    "said", [{"flash_attn": "on"}, {"flash_attn": "off"}, {"cache_type_v": "q8_0"}, {"parallel": 8}]
)
def test_where_it_is_decided_nothing_is_measured(found, said):
    calls = found(1.0, 2.0)
    options = OPTIONS.model_copy(update=said)
    assert choose_flash_attention(builtin_draft(), options, 2) == options
    assert not calls


def test_the_shape_is_that_of_the_file():
    reader = gguf.GGUFReader(builtin_draft())
    fields = {key.partition(".")[2]: field.contents() for key, field in reader.fields.items()}
    shape = AttentionShape.of(builtin_draft())
    assert shape is not None
    assert shape.n_heads == fields["attention.head_count"]
    assert shape.n_kv_heads == fields["attention.head_count_kv"]
    assert shape.key_length * shape.n_heads == fields["embedding_length"]


@pytest.mark.parametrize("architecture", ["deepseek2", "jamba", "mamba"])
def test_attention_of_another_kind_is_not_compared(tiny_model, architecture):
    assert AttentionShape.of(tiny_model(architecture)) is None


@pytest.mark.parametrize(
    "heads", [{"head_count": 3, "head_count_kv": 2}, {"key_length": 7}, {"head_count": 0}]
)
def test_a_shape_that_would_abort_llama_cpp_is_not_tried(monkeypatch, heads):
    values = {"embedding_length": 64, "attention.head_count": 4}
    values |= {f"attention.{key}": value for key, value in heads.items()}
    monkeypatch.setattr(
        attention_probe, "integers", lambda _path, prefix: {prefix + k: v for k, v in values.items()}
    )
    assert AttentionShape.of(builtin_draft()) is None


def test_what_is_no_model_has_no_shape(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    assert AttentionShape.of(path) is None


@pytest.mark.parametrize("window", [0, 64])
@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_both_are_timed_with_the_heads_of_the_model(window, kind):
    shape = AttentionShape(SHAPE.n_heads, SHAPE.n_kv_heads, SHAPE.key_length, SHAPE.value_length, window)
    times = measure(shape, OPTIONS.model_copy(update={"cache_type_k": kind}), 1)
    assert times is not None
    assert times.without_flash > 0
    assert times.with_flash > 0


def test_what_takes_too_long_is_not_measured(monkeypatch):
    monkeypatch.setattr(attention_probe, "_MAX_SECONDS", -1.0)
    assert measure(SHAPE, OPTIONS, 3) is None
