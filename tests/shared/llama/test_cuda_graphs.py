import os

import pytest

from shared.llama.cuda_graphs import switch_off_if_wrong
from shared.model_files.builtin import builtin_target
from tests.tiny_models import TinyModel, write_tiny_model

HOPPER = "  Device 0: NVIDIA H200, compute capability 9.0, VMM: yes, VRAM: 143155 MiB"
ADA = "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes, VRAM: 24080 MiB"
NO_FLASH = "resolve_fused_ops: Flash Attention not supported, set to disabled"


@pytest.fixture
def floats(tmp_path):
    return write_tiny_model(TinyModel("llama"), tmp_path / "f32.gguf")


@pytest.fixture
def is_off(monkeypatch):
    """A function that returns whether graphs are off after these log lines of llama.cpp."""

    def ask(path, *lines, flash_attention=True):
        monkeypatch.delenv("GGML_CUDA_DISABLE_GRAPHS", raising=False)
        switch_off_if_wrong(path, lines, flash_attention=flash_attention)
        return "GGML_CUDA_DISABLE_GRAPHS" in os.environ

    return ask


def test_a_gpu_with_clusters_replays_no_step_of_weights_that_are_not_quantized(is_off, floats):
    assert is_off(floats, ADA, HOPPER)
    assert not is_off(floats, ADA)
    assert not is_off(floats)


def test_quantized_weights_are_replayed(is_off):
    assert not is_off(builtin_target(), HOPPER)


def test_attention_without_flash_attention_is_not_replayed(is_off):
    assert is_off(builtin_target(), HOPPER, flash_attention=False)
    assert is_off(builtin_target(), HOPPER, NO_FLASH)
