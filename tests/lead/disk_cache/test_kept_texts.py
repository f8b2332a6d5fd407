"""An option changes between storing a text and loading it: its logits stay right, or it is not loaded."""

import functools
import os
import shutil
from itertools import count
from pathlib import Path

import gguf
import numpy as np
import pytest

from lead.disk_cache.in_engine import text_key
from lead.engine.load import Load
from shared.cache_edits import Snapshot
from shared.heads.hidden_sources import NextnStates
from shared.llama.model import Model
from shared.llama.span import Span
from shared.llama.start_key import DECIDES, StoredKind
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions
from tests.conftest import more
from tests.shared.llama.test_start_key import ANOTHER
from tests.shared.lora.test_adapters import factors, write_adapter
from tests.tiny_models import WRITTEN, TinyModel, copy_fields, write_and_close, write_tiny_model

BOUND = 0.01
"""The largest difference of logits. As in test_right_logits.py, it is far above the last bits of f32."""
N_ORIGINAL = 512
"""The context from which on LongRoPE uses other factors."""
OPTIONS = ModelOptions(
    ctx_size=2 * N_ORIGINAL,
    parallel=2,
    threads=1,
    batch_size=64,
    ubatch_size=64,
    n_gpu_layers=0,
    cache_type_k="f32",
    cache_type_v="f32",
    cache_ram=256,
)
TEXT = [token % 4000 for token in range(7, 7 + 97 * 150, 97)]
KINDS = ["plain", "longrope", "adapter", "windows", "recurrent", "latent"]


@pytest.fixture(scope="session")
def kinds(tiny_model, tmp_path_factory):
    """A function that writes a model of a kind into its own folder, once; returns it with its options."""

    @functools.cache
    def write(kind):
        folder = tmp_path_factory.mktemp(kind)
        architecture = {"windows": "gemma3", "recurrent": "qwen35", "latent": "deepseek2"}.get(kind, "llama")
        path = Path(shutil.copy(tiny_model(architecture), folder / "model.gguf"))
        if kind == "longrope":
            _add_long_rope(path)
        lora = str(write_adapter(folder / "adapter.gguf", factors(path))) if kind == "adapter" else ()
        return path, OPTIONS.model_copy(update={"lora": ModelOptions(lora=lora).lora})

    return write


@pytest.fixture(scope="session")
def texts(kinds):
    """The text of a kind, stored once."""
    return functools.cache(lambda kind: stored(*kinds(kind)))


def _add_long_rope(path):
    """Add two tables of factors. Above `N_ORIGINAL` tokens of context llama.cpp uses the second one."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path.with_suffix(".long"), "llama")
    copy_fields(reader, writer, lambda name: not name.startswith((*WRITTEN, "llama.rope.scaling")))
    writer.add_string("llama.rope.scaling.type", "longrope")
    writer.add_uint32("llama.rope.scaling.original_context_length", N_ORIGINAL)
    n_factors = reader.fields["llama.rope.dimension_count"].contents() // 2
    writer.add_tensor("rope_factors_long.weight", np.linspace(1, 4, n_factors).astype(np.float32))
    writer.add_tensor("rope_factors_short.weight", np.ones(n_factors, np.float32))
    for tensor in (each for each in reader.tensors if each.name != "rope_freqs.weight"):
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    write_and_close(writer)
    path.with_suffix(".long").replace(path)


class Start:
    """A model as an engine loads it, for as long as the context lasts."""

    def __init__(self, path, options, *, with_heads=False):
        self.model = Model(plan_memory(path, options, with_heads=with_heads))
        if with_heads:
            NextnStates(self.model)
        self.key = text_key(self.model, Load(model=path, options=options))
        self._keys = count(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.model.close()

    def read(self, slot, tokens, start=0):
        """The logits after `tokens`."""
        for at in range(0, len(tokens), 32):
            (rows,) = self.model.decode([Span(slot, start + at, tokens[at : at + 32], 1)])
        return rows[0].copy()

    def stored(self):
        """The parts of the text in slot 0, with their bytes."""
        n_part = self.model.prompt_cache.n_part or len(TEXT)
        parts = []
        for at in range(0, len(TEXT), n_part):
            part = Snapshot("text", next(self._keys), min(at + n_part, len(TEXT)), at)
            self.model.store(0, part)
            parts.append((part, bytes(self.model.lend(part.key))))
        return parts

    def restore(self, parts):
        for part, content in parts:
            mine = part._replace(key=next(self._keys))
            self.model.reserve(mine.key, len(content))[:] = content
            self.model.take_back(mine.key)
            self.model.restore(0, mine, part.end)


def stored(path, options):
    """A text, and the key under which it is stored."""
    with Start(path, options) as start:
        start.read(0, TEXT)
        return start.stored(), start.key


def differs(text, path, options, **more):
    """Return whether a text that was `stored` gives other logits with this start; None if not loaded."""
    parts, key = text
    with Start(path, options, **more) as start:
        if start.key != key:
            return None
        start.restore(parts)
        loaded = start.read(0, [5], len(TEXT))
        start.read(1, TEXT)
        return bool(np.abs(loaded - start.read(1, [5], len(TEXT))).max() > BOUND)


def changed(path, options, **values):
    return path, options.model_copy(update=values)


OF_NO_TEXT = sorted(name for name in ANOTHER if StoredKind.TEXTS not in DECIDES[name])
"""Options with which a stored text is still found: its logits have to be right."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_loaded_where_it_was_stored(kinds, texts, kind):
    assert differs(texts(kind), *kinds(kind)) is False


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_matter_who_has_decided_against_flash_attention(kinds, texts, kind):
    """By default flash attention is chosen by measuring. A busy machine leaves this to the next start."""
    assert differs(texts(kind), *changed(*kinds(kind), flash_attn="off")) is False


@pytest.mark.parametrize("name", OF_NO_TEXT)
@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_is_not_in_the_key_changes_no_logits(kinds, texts, kind, name):
    found = differs(texts(kind), *changed(*kinds(kind), **{name: ANOTHER[name]}))
    is_told_by_the_model = name == "flash_attn" or (kind, name) == ("longrope", "ctx_size")
    assert found is (None if is_told_by_the_model else False)


@pytest.mark.models
@pytest.mark.parametrize("name", sorted(ANOTHER.keys() - OF_NO_TEXT - {"exact", "lora"}))
@pytest.mark.parametrize("kind", KINDS)
def test_with_another_value_of_any_other_option_it_is_read_anew(kinds, texts, kind, name):
    names = ("cache_type_k", "cache_type_v") if name.startswith("cache_type") else (name,)
    values = {each: ANOTHER[each] for each in names} | ({"flash_attn": "on"} if len(names) > 1 else {})
    assert differs(texts(kind), *changed(*kinds(kind), **values)) is None


def test_with_an_adapter_or_another_scale_it_is_read_anew(kinds, texts):
    path, options = kinds("adapter")
    (adapter,) = options.lora
    for lora in ((), (adapter.model_copy(update={"scale": 0.5}),)):
        assert differs(texts("adapter"), *changed(path, options, lora=lora)) is None


@pytest.mark.parametrize("name", ["model.gguf", "adapter.gguf"])
def test_a_file_that_was_replaced_while_the_lead_slept_counts_as_another(kinds, tmp_path, name):
    """The options are the front's, which has not read the files again."""
    path, options = kinds("adapter")
    for each in path.parent.iterdir():
        shutil.copy(each, tmp_path)
    adapter = ModelOptions(lora=str(tmp_path / "adapter.gguf")).lora
    start = changed(tmp_path / "model.gguf", options, lora=adapter)
    text = stored(*start)
    if name == "adapter.gguf":
        write_adapter(tmp_path / name, {key: (-a, b) for key, (a, b) in factors(path).items()})
    else:
        write_tiny_model(TinyModel("llama", seed=2), tmp_path / name)
    assert differs(text, *start) is None


@pytest.mark.parametrize("architecture", ["qwen35", more("qwen3next"), more("glm4moe")])
def test_heads_that_draft_change_nothing(tiny_with_heads, architecture):
    start = tiny_with_heads(architecture), OPTIONS
    assert differs(stored(*start), *start, with_heads=True) is False


def test_a_quantized_cache_that_llama_cpp_does_not_rotate_is_another(tmp_path, monkeypatch):
    """llama.cpp rotates keys of heads of 64, unless a variable forbids it."""
    path = write_tiny_model(TinyModel("llama", width=128), tmp_path / "wide.gguf")
    start = changed(path, OPTIONS, cache_type_k="q8_0", cache_type_v="f16")
    text = stored(*start)
    assert differs(text, *start) is False
    monkeypatch.setitem(os.environ, "LLAMA_ATTN_ROT_DISABLE", "1")
    assert differs(text, *start) is None


@pytest.mark.parametrize("kind", ["plain", more("windows"), more("latent")])
def test_flash_attention_stores_values_in_another_order_however_it_was_chosen(kinds, kind):
    """With `auto`, many slots have flash attention. llama.cpp leaves it out if no device supports it."""
    path, options = kinds(kind)
    many = options.model_copy(update={"parallel": 5, "cache_type_k": "f16", "cache_type_v": "f16"})
    with Start(path, many) as start:
        assert start.model.facts.uses_flash_attention
        start.model.facts = start.model.facts._replace(uses_flash_attention=False)
        assert text_key(start.model, Load(model=path, options=many)) != start.key
