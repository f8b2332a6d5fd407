"""The sizes that are stated beforehand are those that llama.cpp allocates."""

from dataclasses import replace

import pytest

from bench.tiny_models import N_CTX, WINDOW
from shared.errors import ModelLoadError
from shared.llama import library
from shared.llama.memory_probe import MemoryProbe, MemorySize, ModelOutline, read_sizes
from shared.llama.model import Model
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2, batch_size=64, ubatch_size=64)


def probe(path, options=OPTIONS):
    with ModelOutline.load(path, options) as outline:
        assert outline.n_ctx_train == N_CTX
        return outline.probe()


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("llama", MemoryProbe(False, False, 0, 4 * 256, 0, 0)),  # 4 layers, 64 keys and values in f16
        ("gemma3", MemoryProbe(False, False, WINDOW, 2 * 256, 2 * 256, 0)),
        ("qwen35", MemoryProbe(True, True, 0, 2 * 256, 0, 20_992)),
        ("jamba", MemoryProbe(True, False, 0, 2 * 256, 0, 35_840)),
    ],
)
def test_each_kind_of_memory_is_measured(tiny_model, architecture, expected):
    assert probe(tiny_model(architecture)) == expected


def test_a_checkpoint_holds_the_state_and_the_window():
    sizes = MemoryProbe(True, True, 10, full_token_bytes=5, window_token_bytes=7, state_bytes=1000)
    assert sizes.checkpoint_bytes == 1070


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35", "lfm2", "jamba", "mamba2", "gpt-oss"])
def test_a_model_takes_what_was_stated_without_its_weights(tiny_model, architecture):
    with library.captured_log() as lines:
        model = Model(tiny_model(architecture), OPTIONS)
    model.close()
    real = max(i for i, line in enumerate(lines) if line.startswith("llama_context: n_ctx "))
    taken = read_sizes(lines[real:])
    assert replace(model.memory_size, computing=taken.computing) == taken
    assert model.memory_size.computing > taken.computing  # graphs and the work buffer are not in the log


def test_a_file_that_is_no_model_cannot_be_measured(tmp_path):
    (tmp_path / "a.gguf").write_text("no model")
    with (
        pytest.raises(ModelLoadError, match="not a GGUF file"),
        ModelOutline.load(tmp_path / "a.gguf", OPTIONS),
    ):
        pass


def test_the_size_is_stated_part_by_part():
    size = MemorySize(12_000_000, 3_000_000, 18_000_000, 9, 1_000_000)
    assert size.total == 34_000_000
    assert str(size) == (
        "12 MB for keys and values, 3 MB for those of sliding windows, 18 MB for 9 recurrent states of "
        "2 MB, 1 MB for intermediate results"
    )
